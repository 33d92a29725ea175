"""``/v1``: glossaries and documents that the server keeps."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Header, Query, Request, Response, UploadFile
from pydantic import BaseModel, ConfigDict

from transduce.serving.document_jobs import DocumentState
from transduce.serving.errors import RequestError
from transduce.serving.glossaries import Dictionary, StoredGlossary, checked
from transduce.serving.openapi import errors
from transduce.serving.server import Server

_MISSING = errors("/v1/", 404)
_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}


class GlossaryBody(BaseModel):
    """A glossary of one direction."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    source: str = ""
    target: str = ""
    entries: dict[str, str]

    @property
    def dictionary(self) -> Dictionary:
        """The terms."""
        return Dictionary(source=self.source, target=self.target, entries=self.entries)


def router(server: Server) -> APIRouter:
    """Return the routes."""

    async def admit(request: Request, authorization: Annotated[str | None, Header()] = None) -> None:
        server.admit(request, (authorization or "").removeprefix("Bearer ").strip() or None)

    api = APIRouter(
        prefix="/v1",
        tags=["Transduce"],
        dependencies=[Depends(admit)],
        responses=errors("/v1/", 400, 403, 404, 413, 429, 503),
    )
    _add_glossaries(api, server)
    _add_documents(api, server)
    return api


def _add_glossaries(api: APIRouter, server: Server) -> None:
    @api.get("/glossaries")
    def list_glossaries() -> list[dict[str, Any]]:
        """List all glossaries, without their entries."""
        return [_summary(glossary) for glossary in server.glossaries.all()]

    @api.post("/glossaries", status_code=201)
    def create_glossary(body: GlossaryBody) -> dict[str, Any]:
        """Store a glossary."""
        server.check_texts([body.name, *body.entries, *body.entries.values()], are_terms=True)
        return _whole(server.glossaries.create(body.name, [body.dictionary]))

    @api.get("/glossaries/{glossary_id}", responses=_MISSING)
    def read_glossary(glossary_id: str) -> dict[str, Any]:
        """Return a glossary with its entries."""
        return _whole(server.glossaries.get(glossary_id))

    @api.put("/glossaries/{glossary_id}", responses=_MISSING)
    def replace_glossary(glossary_id: str, body: GlossaryBody) -> dict[str, Any]:
        """Replace a glossary."""
        server.check_texts([body.name, *body.entries, *body.entries.values()], are_terms=True)
        changes = {"name": body.name, "dictionaries": (checked(body.dictionary),)}

        def changed(old: StoredGlossary) -> StoredGlossary:
            if len(old.dictionaries) > 1:  # others than the one that a client of this API has seen
                raise RequestError("the glossary has several dictionaries", "use /v3/glossaries")
            return old.model_copy(update=changes)

        return _whole(server.glossaries.change(glossary_id, changed))

    @api.delete("/glossaries/{glossary_id}", status_code=204, responses=_MISSING)
    def delete_glossary(glossary_id: str) -> Response:
        """Delete a glossary."""
        server.glossaries.delete(glossary_id)
        return Response(status_code=204)


def _add_documents(api: APIRouter, server: Server) -> None:
    @api.post("/documents", status_code=202)
    async def send_document(
        file: Annotated[UploadFile, File()],
        source: Annotated[str | None, Form()] = None,
        target: Annotated[str | None, Form()] = None,
    ) -> dict[str, Any]:
        """Translate a document in the background."""
        content = await file.read()
        state = await server.start_document(file.filename or "", content, source or None, target or None)
        return _document(state)

    @api.get("/documents/{document_id}", responses=_MISSING)
    def document_state(document_id: str, key: Annotated[str, Query()]) -> dict[str, Any]:
        """Return how far a document is."""
        return _document(server.documents.state(document_id, key))

    @api.get("/documents/{document_id}/result", response_class=Response, responses={**_FILE, **_MISSING})
    def document_result(document_id: str, key: Annotated[str, Query()]) -> Response:
        """Return a translated document."""
        return server.document_answer(document_id, key)


def _summary(glossary: StoredGlossary) -> dict[str, Any]:
    first = glossary.dictionaries[0]
    return {
        "id": glossary.id,
        "name": glossary.name,
        "source": first.source,
        "target": first.target,
        "entry_count": sum(len(dictionary.entries) for dictionary in glossary.dictionaries),
    }


def _whole(glossary: StoredGlossary) -> dict[str, Any]:
    return {**_summary(glossary), "entries": glossary.dictionaries[0].entries}


def _document(state: DocumentState) -> dict[str, Any]:
    return {
        "id": state.id,
        "key": state.key,
        "name": state.name,
        "status": state.status,
        "done": state.done,
        "total": state.total,
        "error": state.error,
    }
