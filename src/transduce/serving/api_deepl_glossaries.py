"""DeepL's glossaries: of one direction in version 2, of several in version 3. Both see the same ones."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from transduce.serving.deepl_requests import admission
from transduce.serving.errors import NotFoundError
from transduce.serving.glossaries import Dictionary, StoredGlossary, parse_entries
from transduce.serving.openapi import TEXT, body, errors, query
from transduce.serving.parameters import Parameters
from transduce.serving.server import Server

_TSV = "text/tab-separated-values"
_PAIR = {"source_lang": {**TEXT, "example": "de"}, "target_lang": {**TEXT, "example": "en"}}
_DICTIONARY = {
    **_PAIR,
    "entries": {**TEXT, "example": "Haus\tbuilding"},
    "entries_format": {"enum": ["tsv", "csv", None]},
}
_SIDES = ["source_lang", "target_lang", "entries"]
_DICTIONARIES = {
    "type": "array",
    "items": {"type": "object", "properties": _DICTIONARY, "required": _SIDES},
}
_MISSING = errors("/v2/", 404)


def router(server: Server) -> APIRouter:
    """Return the routes of both versions."""
    api = APIRouter(tags=["DeepL"], responses=errors("/v2/", 400, 403, 413, 429, 503))
    admitted = admission(server)
    _add_version_2(api, server, admitted)
    _add_version_3(api, server, admitted)
    _add_dictionaries(api, server, admitted)
    return api


def _add_version_2(api: APIRouter, server: Server, admitted: Any) -> None:
    checked = [Depends(admitted)]

    @api.get("/v2/glossary-language-pairs", dependencies=checked)
    async def glossary_language_pairs() -> dict[str, Any]:
        """Return the directions that glossaries can be made for: all."""
        pairs = dict.fromkeys((_base(each.source), _base(each.target)) for each in server.directions.all)
        return {"supported_languages": [_pair(*pair) for pair in pairs if all(pair)]}

    @api.get("/v2/glossaries", dependencies=checked)
    def list_glossaries() -> dict[str, Any]:
        """List the glossaries of one direction."""
        found = [each for each in server.glossaries.all() if len(each.dictionaries) == 1]
        return {"glossaries": [_info_v2(glossary) for glossary in found]}

    @api.post(
        "/v2/glossaries",
        status_code=201,
        openapi_extra=body({"name": TEXT, **_DICTIONARY}, ["name", *_SIDES]),
    )
    def create_glossary(parameters: Annotated[Parameters, Depends(admitted)]) -> dict[str, Any]:
        """Store a glossary of one direction."""
        dictionary = _dictionary(server, parameters)
        return _info_v2(server.glossaries.create(parameters.required("name"), [dictionary]))

    @api.get("/v2/glossaries/{glossary_id}", dependencies=checked, responses=_MISSING)
    def read_glossary(glossary_id: str) -> dict[str, Any]:
        """Describe a glossary."""
        return _info_v2(_single(server, glossary_id))

    @api.get(
        "/v2/glossaries/{glossary_id}/entries",
        dependencies=checked,
        response_class=Response,
        responses={200: {"content": {_TSV: {"schema": TEXT}}}, **_MISSING},
    )
    def read_entries(glossary_id: str) -> Response:
        """Return the entries of a glossary as TSV."""
        glossary = _single(server, glossary_id)
        return Response(_tsv(glossary.dictionaries[0]), media_type=_TSV)

    @api.delete("/v2/glossaries/{glossary_id}", dependencies=checked, status_code=204, responses=_MISSING)
    def delete_glossary(glossary_id: str) -> Response:
        """Delete a glossary."""
        server.glossaries.delete(glossary_id)
        return Response(status_code=204)


def _add_version_3(api: APIRouter, server: Server, admitted: Any) -> None:
    checked = [Depends(admitted)]

    @api.get("/v3/glossaries", dependencies=checked)
    def list_glossaries_v3() -> dict[str, Any]:
        """List all glossaries."""
        return {"glossaries": [_info_v3(glossary) for glossary in server.glossaries.all()]}

    @api.post(
        "/v3/glossaries",
        status_code=201,
        openapi_extra=body({"name": TEXT, "dictionaries": _DICTIONARIES}, ["name", "dictionaries"]),
    )
    def create_glossary_v3(parameters: Annotated[Parameters, Depends(admitted)]) -> dict[str, Any]:
        """Store a glossary of one direction or several."""
        dictionaries = [_dictionary(server, each) for each in parameters.objects("dictionaries")]
        return _info_v3(server.glossaries.create(parameters.required("name"), dictionaries))

    @api.get("/v3/glossaries/{glossary_id}", dependencies=checked, responses=_MISSING)
    def read_glossary_v3(glossary_id: str) -> dict[str, Any]:
        """Describe a glossary."""
        return _info_v3(server.glossaries.get(glossary_id))

    @api.patch(
        "/v3/glossaries/{glossary_id}",
        responses=_MISSING,
        openapi_extra=body({"name": TEXT, "dictionaries": _DICTIONARIES}),
    )
    def change_glossary_v3(
        glossary_id: str, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, Any]:
        """Rename a glossary, and add entries to its dictionaries."""
        name = parameters.text("name")
        added = [_dictionary(server, each) for each in parameters.objects("dictionaries")]

        def changed(glossary: StoredGlossary) -> StoredGlossary:
            for dictionary in added:
                glossary = glossary.with_dictionary(dictionary, merge=True)
            return glossary if name is None else glossary.model_copy(update={"name": name})

        return _info_v3(server.glossaries.change(glossary_id, changed))

    @api.delete("/v3/glossaries/{glossary_id}", dependencies=checked, status_code=204, responses=_MISSING)
    def delete_glossary_v3(glossary_id: str) -> Response:
        """Delete a glossary."""
        server.glossaries.delete(glossary_id)
        return Response(status_code=204)


def _add_dictionaries(api: APIRouter, server: Server, admitted: Any) -> None:
    @api.get("/v3/glossaries/{glossary_id}/entries", responses=_MISSING, openapi_extra=query(**_PAIR))
    def read_dictionary(
        glossary_id: str, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, Any]:
        """Return the entries of a dictionary as TSV."""
        pair = parameters.required("source_lang"), parameters.required("target_lang")
        dictionary = server.glossaries.get(glossary_id).dictionary(*pair)
        entries = {"entries": _tsv(dictionary), "entries_format": "tsv"}
        return {"dictionaries": [{**_pair(*dictionary.pair), **entries}]}

    @api.put(
        "/v3/glossaries/{glossary_id}/dictionaries",
        responses=_MISSING,
        openapi_extra=body(_DICTIONARY, _SIDES),
    )
    def replace_dictionary(
        glossary_id: str, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, Any]:
        """Replace a dictionary, or add it."""
        new = _dictionary(server, parameters)
        glossary = server.glossaries.change(glossary_id, lambda old: old.with_dictionary(new, merge=False))
        return _count(glossary.dictionary(new.source, new.target))

    @api.delete(
        "/v3/glossaries/{glossary_id}/dictionaries",
        status_code=204,
        responses=_MISSING,
        openapi_extra=query(**_PAIR),
    )
    def delete_dictionary(glossary_id: str, parameters: Annotated[Parameters, Depends(admitted)]) -> Response:
        """Delete a dictionary."""
        pair = parameters.required("source_lang"), parameters.required("target_lang")
        server.glossaries.change(glossary_id, lambda old: old.without_dictionary(*pair))
        return Response(status_code=204)


def _single(server: Server, glossary_id: str) -> StoredGlossary:
    """Return a glossary of one direction; version 2 knows no other ones."""
    glossary = server.glossaries.get(glossary_id)
    if len(glossary.dictionaries) != 1:
        raise NotFoundError("the glossary has several dictionaries", "use /v3/glossaries")
    return glossary


def _dictionary(server: Server, parameters: Parameters) -> Dictionary:
    """Read a dictionary for languages that are served."""
    source, target = parameters.required("source_lang"), parameters.required("target_lang")
    server.directions.find(source, target)
    entries = parameters.required("entries")
    layout = parameters.text("entries_format") or "tsv"
    return Dictionary(source=source.lower(), target=target.lower(), entries=parse_entries(entries, layout))


def _info_v2(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "ready": True,
        "creation_time": glossary.created,
        **_count(glossary.dictionaries[0]),
    }


def _info_v3(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "dictionaries": [_count(dictionary) for dictionary in glossary.dictionaries],
        "creation_time": glossary.created,
    }


def _count(dictionary: Dictionary) -> dict[str, Any]:
    return {**_pair(*dictionary.pair), "entry_count": len(dictionary.entries)}


def _pair(source: str, target: str) -> dict[str, str]:
    return {"source_lang": source, "target_lang": target}


def _base(code: str | None) -> str:
    """Return a code without its region, as glossaries have it."""
    return (code or "").replace("_", "-").split("-")[0].lower()


def _tsv(dictionary: Dictionary) -> str:
    return "\n".join(f"{source}\t{target}" for source, target in dictionary.entries.items())
