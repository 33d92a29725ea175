"""The API of OpenNMT-py's server, which MTUOC and other tools for translators speak."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request

from transduce.serving.directions import Direction
from transduce.serving.errors import RequestError
from transduce.serving.openapi import TEXT, errors
from transduce.serving.options import Options
from transduce.serving.parameters import Parameters, missing, parse_json
from transduce.serving.results import TranslatedText
from transduce.serving.server import Server, unless_disconnected

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["src"],
                        "properties": {
                            "src": {**TEXT, "example": "Guten Morgen ."},
                            "id": {"type": ["integer", "null"], "minimum": 0, "description": "Of a model."},
                        },
                    },
                }
            }
        },
    }
}


def router(server: Server) -> APIRouter:
    """Return the routes."""
    api = APIRouter(prefix="/translator", tags=["OpenNMT-py"])

    @api.post("/translate", responses=errors("/translator/", 400, 403, 413, 429, 503), openapi_extra=_BODY)
    async def translate_segments(
        request: Request, authorization: Annotated[str | None, Header()] = None
    ) -> list[list[dict[str, Any]]]:
        """Translate segments; the answer has a list with the best translation of each."""
        server.admit(request, (authorization or "").removeprefix("Bearer ").strip() or None)
        segments = _segments(parse_json(await request.body()))
        texts = [segment.text("src") for segment in segments]
        sources = [text for text in texts if text is not None]
        if len(sources) < len(texts):
            raise missing("src")
        directions = [_direction(server, segment) for segment in segments]
        options = Options(splitting="none", guard=server.settings.guard)
        results = await unless_disconnected(request, server.translate(sources, directions, options))
        return [[_answer(text, result) for text, result in zip(sources, results, strict=True)]]

    @api.get("/models")
    async def list_models() -> list[dict[str, Any]]:
        """Return the models; their numbers are the ids that segments may have."""
        return [
            {
                "model_id": number,
                "status": "loaded" if server.store.is_loaded(direction) else "unloaded",
                "name": direction.name,
                "opt": {"src_lang": direction.source, "tgt_lang": direction.target},
            }
            for number, direction in enumerate(server.directions.all)
        ]

    return api


def _segments(content: Any) -> list[Parameters]:
    if not isinstance(content, list) or not content or not all(isinstance(each, dict) for each in content):
        raise RequestError("the body is not a list of objects", 'send [{"src": "…"}]')
    return [Parameters(each) for each in content]


def _direction(server: Server, segment: Parameters) -> Direction:
    """Return the direction that a segment names by a number; servers of one model do not need it."""
    known = server.directions.all
    if len(known) == 1:
        return known[0]
    return known[segment.number("id", 0, least=0, most=len(known) - 1)]


def _answer(text: str, result: TranslatedText) -> dict[str, Any]:
    candidates = [sentence.translation.candidates for sentence in result.sentences]
    score = sum(each[0].score for each in candidates if each)
    return {"src": text, "tgt": result.text, "n_best": 1, "pred_score": round(score, 6)}
