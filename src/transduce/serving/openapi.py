"""What OpenAPI cannot see in the code: bodies that are parsed by hand, and errors."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI

from transduce.serving.answers import error_body

_DESCRIPTIONS = {
    400: "The request is not valid",
    403: "The API key is missing or not valid",
    404: "There is no such thing",
    413: "The request is over a limit",
    429: "Too many requests; Retry-After says when to come back",
    503: "The server is stopping, or the work is not done yet",
}
JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
TEXT: dict[str, Any] = {"type": "string"}
FLAG: dict[str, Any] = {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["0", "1"]}]}
TEXTS: dict[str, Any] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}


def body(
    properties: Mapping[str, Any], required: Sequence[str] = (), kinds: Sequence[str] = (JSON, FORM)
) -> dict[str, Any]:
    """Describe a body with these properties, for ``openapi_extra``; in JSON, optional ones may be null."""
    content = {}
    for kind in kinds:
        described = {
            name: _required(schema) if name in required else _optional(schema, kind)
            for name, schema in properties.items()
        }
        schema: dict[str, Any] = {"type": "object", "properties": described}
        content[kind] = {"schema": {**schema, "required": list(required)} if required else schema}
    return {"requestBody": {"required": bool(required), "content": content}}


def _required(schema: Mapping[str, Any]) -> dict[str, Any]:
    is_text = schema.get("type") == "string" and "format" not in schema
    return {**schema, "minLength": 1} if is_text else dict(schema)


def _optional(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"anyOf": [dict(schema), {"type": "null"}]} if kind == JSON else dict(schema)


def query(**names: Mapping[str, Any]) -> dict[str, Any]:
    """Describe parameters of the query that may be left out, for ``openapi_extra``."""
    return {
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": dict(schema)}
            for name, schema in names.items()
        ]
    }


def errors(path: str, *codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of an API, which ``path`` belongs to, for ``responses``."""
    schema = _schema(error_body(path, "", ""))
    return {
        code: {"description": _DESCRIPTIONS[code], "content": {JSON: {"schema": schema}}} for code in codes
    }


def describe(app: FastAPI) -> None:
    """Remove the answer 422 from the description: what is not valid is answered with 400."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            for operations in make()["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
        return make()

    app.openapi = openapi  # type: ignore[method-assign]


def _schema(value: Any) -> dict[str, Any]:
    """Return the schema of an object of texts and objects."""
    if not isinstance(value, dict):
        return TEXT
    properties = {name: _schema(each) for name, each in value.items()}
    return {"type": "object", "required": [*properties], "properties": properties}
