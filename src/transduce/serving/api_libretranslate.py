"""LibreTranslate's API, which its clients and plug-ins speak; detects the language of each text of a list."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from transduce.serving.document_jobs import DocumentState
from transduce.serving.errors import RequestError
from transduce.serving.languages import Detected, language_name
from transduce.serving.openapi import MULTIPART, TEXT, TEXTS, body, errors
from transduce.serving.options import Options
from transduce.serving.parameters import Parameters, missing, read_parameters
from transduce.serving.results import TranslatedText
from transduce.serving.server import Server, unless_disconnected

_ERRORS = errors("/translate", 400, 403, 413, 429, 503)
_FORMATS = ("text", "html")
_WHOLE_NUMBER: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]
}
_TRANSLATE = body(
    {
        "q": {**TEXTS, "example": "Guten Morgen."},
        "source": {**TEXT, "description": "A code, or auto.", "example": "auto"},
        "target": {**TEXT, "example": "en"},
        "format": {"type": "string", "enum": [*_FORMATS], "default": "text"},
        "alternatives": {**_WHOLE_NUMBER, "default": 0},
        "api_key": TEXT,
    },
    required=["q", "source", "target"],
)
_FILE = {"type": "string", "format": "binary"}


def router(server: Server) -> APIRouter:
    """Return the routes."""
    api = APIRouter(tags=["LibreTranslate"])

    async def admitted(request: Request) -> Parameters:
        parameters = await read_parameters(request)
        server.admit(request, parameters.text("api_key") or None)
        return parameters

    Admitted = Annotated[Parameters, Depends(admitted)]  # noqa: N806 (a type)

    @api.post("/translate", responses=_ERRORS, openapi_extra=_TRANSLATE)
    async def translate_texts(request: Request, parameters: Admitted) -> dict[str, Any]:
        """Translate one text or a list of texts."""
        texts, is_list = _texts(parameters), isinstance(parameters.values["q"], list)
        server.check_texts(texts)
        source, target = _languages(server, parameters)
        alternatives = parameters.number("alternatives", 0, least=0, most=server.settings.max_candidates - 1)
        options = Options(
            format="html" if parameters.choice("format", _FORMATS, "text") == "html" else "text",
            candidates=alternatives + 1,
            guard=server.settings.guard,
        )
        chosen = await server.directions_of(texts, source, target)
        results = await unless_disconnected(
            request, server.translate(texts, [direction for direction, _ in chosen], options)
        )
        detected = [each for _, each in chosen if each is not None]
        return _answer(results, detected, alternatives > 0, is_list)

    @api.post("/detect", responses=_ERRORS, openapi_extra=body({"q": TEXT, "api_key": TEXT}, ["q"]))
    async def detect(parameters: Admitted) -> list[dict[str, Any]]:
        """Return the languages that a text may be in, most likely first."""
        text = parameters.required("q")
        server.check_texts([text])
        if server.detector is None or not server.directions.sources:
            raise RequestError("this server cannot detect languages", "name the source language")
        found = server.detector.detect(text)
        return [_detected(each) for each in found if each.confidence >= 0.01] or [_detected(found[0])]

    @api.get("/languages")
    async def list_languages() -> list[dict[str, Any]]:
        """Return the languages, and what each can be translated into."""
        directions = server.directions
        return [
            {"code": code, "name": language_name(code), "targets": directions.targets_of(code)}
            for code in sorted({*directions.sources, *directions.targets})
        ]

    @api.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """Return what pages that use this API need to know."""
        return _settings(server)

    _add_files(api, server, admitted)
    return api


def _add_files(api: APIRouter, server: Server, admitted: Any) -> None:
    @api.post(
        "/translate_file",
        responses=_ERRORS,
        openapi_extra=body(
            {"file": _FILE, "source": TEXT, "target": TEXT, "api_key": TEXT},
            required=["file", "source", "target"],
            kinds=[MULTIPART],
        ),
    )
    async def translate_file(
        request: Request, parameters: Annotated[Parameters, Depends(admitted)]
    ) -> dict[str, str]:
        """Translate a document, and return the address of the translation."""
        file = parameters.files.get("file")
        if file is None:
            raise missing("file")
        source, target = _languages(server, parameters)
        state = await server.start_document(file.filename or "", await file.read(), source, target)
        await unless_disconnected(request, server.documents.wait(state.id))
        _require_done(server.documents.state(state.id, state.key))
        address = request.url_for("download_file", document_id=state.id, key=state.key)
        return {"translatedFileUrl": str(address)}

    @api.get(
        "/download_file/{document_id}/{key}",
        responses={200: {"content": {"application/octet-stream": {}}}, **errors("/download_file", 400, 404)},
        response_class=Response,
    )
    def download_file(document_id: str, key: str) -> Response:
        """Return a translated document; nobody can guess its key."""
        return server.document_answer(document_id, key)


def _texts(parameters: Parameters) -> list[str]:
    texts = parameters.texts("q")
    if not texts or (texts == [""] and parameters.values["q"] == ""):
        raise missing("q")
    return texts


def _languages(server: Server, parameters: Parameters) -> tuple[str | None, str | None]:
    """Return the codes of the languages; a server that knows none does not need them."""
    if server.directions.sources:
        return parameters.required("source").lower(), parameters.required("target").lower()
    return None, None


def _answer(
    results: list[TranslatedText], detected: list[Detected], with_alternatives: bool, is_list: bool
) -> dict[str, Any]:
    """Return lists for a list, and single values for a single text."""
    columns: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if detected:
        columns["detectedLanguage"] = [_detected(each) for each in detected]
    if with_alternatives:
        columns["alternatives"] = [result.alternatives for result in results]
    return {name: column if is_list else column[0] for name, column in columns.items()}


def _detected(detected: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * detected.confidence, 1), "language": detected.code}


def _require_done(state: DocumentState) -> None:
    if state.status != "done":
        raise RequestError(f"the document was not translated: {state.error}", "send it again")


def _settings(server: Server) -> dict[str, Any]:
    first = server.directions.all[0]
    has_keys = server.keys.are_required
    return {
        "charLimit": server.settings.max_characters,
        "frontendTimeout": 500,
        "apiKeys": has_keys,
        "keyRequired": has_keys,
        "suggestions": False,
        "filesTranslation": bool(server.document_kinds),
        "supportedFilesFormat": server.document_kinds,
        "language": {
            side: {"code": code or "", "name": language_name(code) if code else ""}
            for side, code in (("source", first.source), ("target", first.target))
        },
    }
