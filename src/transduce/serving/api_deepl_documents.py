"""DeepL's documents: send one, ask how far it is, fetch the translation."""

from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from transduce.serving.deepl_requests import admission, languages_of, terms_of
from transduce.serving.document_jobs import DocumentState
from transduce.serving.errors import RequestError, UnavailableError
from transduce.serving.openapi import MULTIPART, TEXT, body, errors
from transduce.serving.options import Options
from transduce.serving.parameters import Parameters, missing
from transduce.serving.server import Server

_FILE = {"type": "string", "format": "binary"}
_SEND = {
    "file": _FILE,
    "target_lang": TEXT,
    "source_lang": TEXT,
    "filename": TEXT,
    "output_format": TEXT,
    "glossary_id": TEXT,
}
_KEY = body({"document_key": TEXT}, ["document_key"])
_MISSING = errors("/v2/", 404)


def router(server: Server) -> APIRouter:
    """Return the routes."""
    api = APIRouter(tags=["DeepL"], responses=errors("/v2/", 400, 403, 404, 413, 429, 503))
    admitted = admission(server)

    @api.post(
        "/v2/document",
        openapi_extra=body(_SEND, ["file", "target_lang"], kinds=[MULTIPART]),
        responses=_MISSING,
    )
    async def send_document(parameters: Annotated[Parameters, Depends(admitted)]) -> dict[str, str]:
        """Translate a document in the background."""
        file = parameters.files.get("file")
        if file is None:
            raise missing("file")
        name = parameters.text("filename") or file.filename or ""
        _require_same_format(name, parameters.text("output_format"))
        source, target = languages_of(server, parameters)
        options = Options(terms=terms_of(server, parameters, source, target), guard=server.settings.guard)
        state = await server.start_document(name, await file.read(), source, target, options)
        return {"document_id": state.id, "document_key": state.key}

    @api.post("/v2/document/{document_id}", responses=_MISSING, openapi_extra=_KEY)
    def document_state(
        document_id: str, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, Any]:
        """Return how far a document is."""
        return _answer(server.documents.state(document_id, parameters.required("document_key")))

    @api.post(
        "/v2/document/{document_id}/result",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}, **_MISSING},
        openapi_extra=_KEY,
    )
    def document_result(document_id: str, parameters: Annotated[Parameters, Depends(admitted)]) -> Response:
        """Return a translated document."""
        key = parameters.required("document_key")
        if server.documents.state(document_id, key).status in ("queued", "translating"):
            raise UnavailableError("the document is not translated yet", "come back later")
        return server.document_answer(document_id, key)

    return api


def _require_same_format(name: str, output_format: str | None) -> None:
    ending = PurePath(name).suffix.lower().removeprefix(".")
    if output_format and output_format.lower().removeprefix(".") != ending:
        raise RequestError("documents keep their format", "leave out output_format")


def _answer(state: DocumentState) -> dict[str, Any]:
    answer: dict[str, Any] = {"document_id": state.id, "status": state.status}
    if state.status == "translating" and state.done:
        answer["seconds_remaining"] = max(1, round(state.seconds / state.done * (state.total - state.done)))
    if state.status == "done":
        answer["billed_characters"] = state.characters
    if state.error is not None:
        answer["error_message"] = state.error
    return answer
