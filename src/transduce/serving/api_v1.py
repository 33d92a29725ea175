"""Our own API, ``/v1``: everything that is known about a translation."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Form, Header, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from transduce.decoding.translation import Candidate
from transduce.serving.answers import error_body
from transduce.serving.directions import Direction
from transduce.serving.errors import RequestError
from transduce.serving.glossaries import checked_entries, checked_words
from transduce.serving.inspecting import alternatives, attention_page, error_page
from transduce.serving.languages import Detected, is_right_to_left, language_name
from transduce.serving.log import log_failure
from transduce.serving.openapi import errors
from transduce.serving.options import Options
from transduce.serving.results import Sentence, TranslatedText
from transduce.serving.server import Server, unless_disconnected


class Body(BaseModel):
    """A body whose fields are all known: a misspelt one is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TranslateBody(Body):
    """Texts to translate."""

    text: str | list[str] = Field(description="A text, or several.", examples=["Guten Morgen."])
    source: str | None = Field(None, description="Source language; auto or null: detect it.", examples=["de"])
    target: str | None = Field(None, description="Target language.", examples=["en"])
    format: Literal["text", "html"] = Field("text", description="Plain text, or HTML whose tags survive.")
    candidates: int = Field(1, ge=1, description="Translations per sentence.")
    alignment: bool = Field(False, description="Whether to align characters (plain text only).")
    tokens: bool = Field(False, description="Whether to list tokens and their log-probabilities.")
    glossary: str | None = Field(None, description="Id of a stored glossary.")
    terms: dict[str, str] = Field(default_factory=dict, description="Source terms and their translations.")
    do_not_translate: list[str] = Field(default_factory=list, description="Words that stay as they are.")
    guard: bool | None = Field(None, description="Whether to search again where a translation looks wrong.")
    stream: bool = Field(False, description="Whether to send each translation as a line of its own (NDJSON).")

    @property
    def source_or_none(self) -> str | None:
        """The source language, unless it is to be detected."""
        return None if self.source is None or self.source.lower() == "auto" else self.source


class AlternativesBody(Body):
    """A sentence whose translation is to continue differently."""

    text: str
    source: str | None = None
    target: str | None = None
    prefix: str = Field("", description="Beginning of the translation that is kept.")


def router(server: Server) -> APIRouter:
    """Return the routes."""
    api = APIRouter(prefix="/v1", tags=["Transduce"], responses=errors("/v1/", 400, 403, 404, 413, 429, 503))

    async def admit(request: Request, authorization: Annotated[str | None, Header()] = None) -> None:
        server.admit(request, (authorization or "").removeprefix("Bearer ").strip() or None)

    admitted = [Depends(admit)]

    @api.post(
        "/translate",
        dependencies=admitted,
        response_model=None,
        responses={200: {"content": {"application/json": {}, "application/x-ndjson": {}}}},
    )
    async def translate(request: Request, body: TranslateBody) -> JSONResponse | StreamingResponse:
        """Translate one text or several."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        server.check_texts(texts)
        options, chosen = _options(server, body), await server.directions_of(texts, body.source, body.target)
        if body.stream:
            lines = _stream(server, texts, chosen, options, body.tokens)
            # The first line decides about the status of the answer.
            first = await unless_disconnected(request, anext(lines, ""))
            return StreamingResponse(_after(first, lines), media_type="application/x-ndjson")
        directions = [direction for direction, _ in chosen]
        results = await unless_disconnected(request, server.translate(texts, directions, options))
        answers = [
            _answer(result, *pair, options, body.tokens) for result, pair in zip(results, chosen, strict=True)
        ]
        return JSONResponse({"translations": answers})  # as it is: FastAPI would look at every number

    @api.post("/alternatives", dependencies=admitted)
    async def other_translations(request: Request, body: AlternativesBody) -> dict[str, Any]:
        """Return translations of a sentence that begin alike and go on differently."""
        server.check_texts([body.text, body.prefix])
        ((direction, _),) = await server.directions_of([body.text], body.source, body.target)
        if direction.is_identity:
            return {"alternatives": []}
        work = alternatives(server.service, direction, body.text, body.prefix)
        found = await unless_disconnected(request, server.in_time(work))
        return {"alternatives": found}

    @api.get("/models")
    async def models() -> dict[str, Any]:
        """Return what this server translates, and its limits."""
        return _models(server)

    @api.post("/inspect", response_class=HTMLResponse)
    async def inspect(
        request: Request,
        text: Annotated[str, Form()],
        source: Annotated[str | None, Form()] = None,
        target: Annotated[str | None, Form()] = None,
        api_key: Annotated[str | None, Form()] = None,
    ) -> HTMLResponse:
        """Return a page that shows the attention for one sentence."""
        status = 200
        try:
            server.admit(request, api_key or None)
            server.check_texts([text])
            ((direction, _),) = await server.directions_of([text], source or None, target or None)
            if direction.is_identity:
                raise RequestError(f"the text is in {direction.target} already", "name the source language")
            work = attention_page(server.service, direction, text)
            page = await unless_disconnected(request, server.in_time(work))
        except RequestError as error:
            page, status = error_page(error), error.status
        headers = {"Content-Security-Policy": page.policy, "X-Frame-Options": "SAMEORIGIN"}
        return HTMLResponse(page.html, status, headers)

    return api


def _options(server: Server, body: TranslateBody) -> Options:
    limit = server.settings.max_candidates
    if body.candidates > limit:
        raise RequestError(f"candidates is {body.candidates}, but {limit} are allowed", "ask for fewer")
    terms = checked_entries(body.terms) if body.terms else {}
    server.check_texts([*body.terms, *body.terms.values(), *body.do_not_translate], are_terms=True)
    if body.glossary is not None:
        stored = server.glossaries.get(body.glossary).terms(body.source_or_none, body.target)
        terms = {**dict(stored), **terms}
    return Options(
        format=body.format,
        candidates=body.candidates,
        alignment=body.alignment,
        terms=tuple(terms.items()),
        do_not_translate=checked_words(body.do_not_translate),
        guard=server.settings.guard if body.guard is None else body.guard,
    )


def _answer(
    result: TranslatedText, direction: Direction, detected: Detected | None, options: Options, tokens: bool
) -> dict[str, Any]:
    """Return a translation as JSON."""
    return {
        "text": result.text,
        "source_language": direction.source,
        "target_language": direction.target,
        "detected": detected and {"language": detected.code, "confidence": detected.confidence},
        "confidence": round(result.confidence, 4),
        "warnings": [
            {"kind": warning.kind, "message": warning.message, "sentence": warning.sentence}
            for warning in result.warnings
        ],
        "glossary_hits": [{"source": source, "target": target} for source, target in result.hits],
        "sentences": [
            _sentence(sentence, result.text[slice(*span)], span, options, tokens)
            for sentence, span in zip(result.sentences, result.spans, strict=True)
        ],
    }


def _sentence(
    sentence: Sentence, text: str, span: tuple[int, int], options: Options, tokens: bool
) -> dict[str, Any]:
    candidates = sentence.translation.candidates
    answer = {
        "source": [sentence.segment.begin, sentence.segment.end],
        "target": list(span),
        "text": text,
        "confidence": round(candidates[0].confidence, 4) if candidates else 1.0,
        "candidates": [_candidate(candidate, tokens) for candidate in candidates],
    }
    if options.alignment and options.format == "text":
        before, after = sentence.segment.begin, span[0]
        # Where placeholders were put in, the model neither read nor wrote the texts that are told.
        links = [] if sentence.segment.markers else sentence.links
        answer["alignment"] = [
            [before + link[0], before + link[1], after + link[2], after + link[3]] for link in links
        ]
    return answer


def _candidate(candidate: Candidate, tokens: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "text": candidate.text,
        "score": round(candidate.score, 4),
        "confidence": round(candidate.confidence, 4),
    }
    if tokens:
        # The end of the sentence has a log-probability, but no token.
        answer["tokens"] = [
            {"text": token, "log_probability": round(value, 4)}
            for token, value in zip(candidate.tokens, candidate.log_probabilities, strict=False)
        ]
    return answer


async def _stream(
    server: Server,
    texts: list[str],
    chosen: list[tuple[Direction, Detected | None]],
    options: Options,
    tokens: bool,
) -> AsyncGenerator[str]:
    """Yield a line of JSON for each text, as soon as it is translated."""
    async with aclosing(server.stream(texts, [direction for direction, _ in chosen], options)) as results:
        for pair in chosen:
            answer = _answer(await anext(results), *pair, options, tokens)
            yield json.dumps(answer, ensure_ascii=False) + "\n"


async def _after(first: str, lines: AsyncGenerator[str]) -> AsyncIterator[str]:
    """Yield lines; an error after the first one becomes a line of its own, which is the last."""
    async with aclosing(lines):
        yield first
        try:
            async for line in lines:
                yield line
        except RequestError as error:
            yield json.dumps(error_body("/v1/", error.problem, error.remedy)) + "\n"
        except Exception as error:
            log_failure("a stream failed", error)
            yield json.dumps(error_body("/v1/", "the server failed", "tell its operator")) + "\n"


def _models(server: Server) -> dict[str, Any]:
    settings, directions = server.settings, server.directions
    codes = sorted({*directions.sources, *directions.targets})
    return {
        "version": version("transduce"),
        "directions": [
            {
                "source": direction.source,
                "target": direction.target,
                "name": direction.name,
                "loaded": server.store.is_loaded(direction),
            }
            for direction in directions.all
        ],
        "languages": [
            {"code": code, "name": language_name(code), "rtl": is_right_to_left(code)} for code in codes
        ],
        "limits": {
            "characters": settings.max_characters,
            "items": settings.max_items,
            "candidates": settings.max_candidates,
            "document_bytes": settings.max_document,
        },
        "key_required": server.keys.are_required,
        "detection": len(directions.sources) > 1 and server.detector is not None,
        "documents": server.document_kinds,
    }
