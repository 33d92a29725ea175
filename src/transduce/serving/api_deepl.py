"""DeepL's API, versions 2 and 3: texts, languages and usage."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from transduce.serving.deepl_languages import languages_v2, languages_v3, source_code
from transduce.serving.deepl_requests import FORMALITY, SPLITTING, admission, languages_of, text_options
from transduce.serving.directions import Direction
from transduce.serving.openapi import FLAG, TEXT, TEXTS, body, errors, query
from transduce.serving.parameters import Parameters, missing
from transduce.serving.server import Server, unless_disconnected

CHARACTER_LIMIT = 1_000_000_000_000  # there is none, but clients want a number
_RESOURCES = ("translate_text", "translate_document", "glossary", "write")
_TRANSLATE = body(
    {
        "text": {**TEXTS, "example": ["Guten Morgen."]},
        "target_lang": {**TEXT, "example": "EN-US"},
        "source_lang": TEXT,
        "context": {**TEXT, "description": "Accepted, but not used."},
        "model_type": {**TEXT, "description": "Accepted, but not used."},
        "split_sentences": {"type": "string", "enum": [*SPLITTING]},
        "preserve_formatting": FLAG,
        "formality": {"type": "string", "enum": [*FORMALITY]},
        "glossary_id": TEXT,
        "glossary_ids": TEXTS,
        "show_billed_characters": FLAG,
        "tag_handling": {"type": "string", "enum": ["html", "xml"]},
        "outline_detection": FLAG,
        "splitting_tags": TEXTS,
        "non_splitting_tags": TEXTS,
        "ignore_tags": TEXTS,
    },
    required=["text", "target_lang"],
)


def router(server: Server) -> APIRouter:
    """Return the routes."""
    api = APIRouter(tags=["DeepL"], responses=errors("/v2/", 400, 403, 404, 413, 429, 503))
    admitted = admission(server)
    _add_translation(api, server, admitted)
    _add_languages(api, server, admitted)
    return api


def _add_translation(api: APIRouter, server: Server, admitted: Any) -> None:
    @api.post("/v2/translate", openapi_extra=_TRANSLATE, responses=errors("/v2/", 404))
    async def deepl_translate(
        request: Request, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, Any]:
        """Translate texts."""
        texts = parameters.texts("text")
        if not texts:
            raise missing("text")
        server.check_texts(texts)
        source, target = languages_of(server, parameters)
        options = text_options(server, parameters, source, target)
        is_billed = parameters.flag("show_billed_characters", True)
        chosen = await server.directions_of(texts, source, target)
        directions = [direction for direction, _ in chosen]
        results = await unless_disconnected(request, server.translate(texts, directions, options))
        return {
            "translations": [
                {
                    "detected_source_language": _source_of(direction, source),
                    "text": result.text,
                    **({"billed_characters": len(text)} if is_billed else {}),
                }
                for text, direction, result in zip(texts, directions, results, strict=True)
            ]
        }


def _add_languages(api: APIRouter, server: Server, admitted: Any) -> None:
    kinds = {"type": "string", "enum": ["source", "target"]}

    @api.get("/v2/languages", openapi_extra=query(type=kinds))
    async def deepl_languages(
        parameters: Annotated[Parameters, Depends(admitted)],
    ) -> list[dict[str, Any]]:
        """Return the source or the target languages."""
        return languages_v2(server.directions, parameters.choice("type", kinds["enum"], "source"))

    resources = {"type": "string", "enum": [*_RESOURCES]}

    @api.get("/v3/languages", openapi_extra=query(resource=resources))
    async def deepl_languages_v3(
        parameters: Annotated[Parameters, Depends(admitted)],
    ) -> list[dict[str, Any]]:
        """Return all languages, and what each can be used as."""
        resource = parameters.choice("resource", _RESOURCES, _RESOURCES[0])
        return [] if resource == "write" else languages_v3(server.directions)

    @api.get("/v2/usage")
    async def deepl_usage(_: Annotated[Parameters, Depends(admitted)]) -> dict[str, int]:
        """Return the characters that this process has translated."""
        return {"character_count": server.characters, "character_limit": CHARACTER_LIMIT}


def _source_of(direction: Direction, given: str | None) -> str:
    return source_code(direction.source or given)
