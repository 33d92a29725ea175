"""Parameters of a request, whichever way a client sends them: as JSON, in a form or in the query."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import ImmutableMultiDict, UploadFile
from starlette.requests import Request

from transduce.serving.errors import RequestError

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_MOST_DIGITS = 9


class Parameters:
    """Named values: of any type in JSON, texts elsewhere; a name that is repeated has a list of them."""

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, UploadFile] | None = None) -> None:
        self.values, self.files = values, files or {}

    def text(self, name: str) -> str | None:
        """Return a text; ``None`` if there is none."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value if value is None else _unicode(name, value)
        raise RequestError(f"Invalid request: {name} is not a string", "send one string")

    def required(self, name: str) -> str:
        """Return a text that must not be missing or empty."""
        value = self.text(name)
        if not value:
            raise missing(name)
        return value

    def texts(self, name: str) -> list[str]:
        """Return one text or several as a list."""
        value = self.values.get(name)
        values = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in values):
            raise RequestError(
                f"Invalid request: {name} is neither a string nor a list of them", "send strings"
            )
        return [_unicode(name, each) for each in values]

    def names(self, name: str) -> tuple[str, ...]:
        """Return names from a list, or separated by commas."""
        return tuple(part.strip() for text in self.texts(name) for part in text.split(",") if part.strip())

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number between two limits."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RequestError(
                f"Invalid request: {name} is not a whole number from {least} to {most}", "send another one"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return whether something is wanted."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        word = str(value).lower() if isinstance(value, (str, int)) else "-"
        if word not in (*_TRUE, *_FALSE):
            raise RequestError(f"Invalid request: {name} is neither true nor false", "send one of them")
        return word in _TRUE

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of several words."""
        value = self.values.get(name)
        word = default if value is None else str(int(value)) if isinstance(value, (bool, int)) else value
        if word not in choices:
            raise RequestError(f"Invalid request: {name} is not supported", f"choose: {', '.join(choices)}")
        return str(word)

    def objects(self, name: str) -> list["Parameters"]:
        """Return a list of objects; forms have ``name[0].key`` instead."""
        value = self.values.get(name)
        if value is None:
            return self._numbered(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise RequestError(f"Invalid request: {name} is not a list of objects", "send such a list")
        return [Parameters(each) for each in value]

    def _numbered(self, name: str) -> list["Parameters"]:
        found: dict[str, dict[str, Any]] = {}
        for key, value in self.values.items():
            number, bracket, field = key.removeprefix(f"{name}[").partition("].")
            if key.startswith(f"{name}[") and bracket:
                found.setdefault(number, {})[field] = value
        return [Parameters(each) for each in found.values()]


async def read_parameters(request: Request) -> Parameters:
    """Read the query and the body of a request; what both have counts as the body has it."""
    values = _texts_of(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _FORMS:
        form = await request.form()
        files = {name: value for name, value in form.multi_items() if isinstance(value, UploadFile)}
        return Parameters({**values, **_texts_of(form)}, files)
    body = await request.body()
    if not body.strip():
        return Parameters(values)
    content = parse_json(body)
    if not isinstance(content, dict):
        raise RequestError("Invalid request: the body is not an object", "send an object in JSON")
    return Parameters({**values, **content})


def parse_json(body: bytes) -> Any:
    """Return what a body in JSON says."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("Invalid request: the body is not valid JSON", "send JSON or a form") from None


def missing(name: str) -> RequestError:
    """Return the error for a parameter that is missing."""
    return RequestError(f"Invalid request: missing {name} parameter", f"send {name}")


def _texts_of(fields: ImmutableMultiDict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in fields:
        texts = [value for value in fields.getlist(name) if isinstance(value, str)]
        if texts:
            values[name] = texts[0] if len(texts) == 1 else texts
    return values


def _unicode(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"Invalid request: {name} contains half of a surrogate pair", "send valid Unicode"
        ) from None
    return text
