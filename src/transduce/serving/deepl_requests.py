"""Requests of DeepL's clients: keys, languages and options."""

from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.requests import Request

from transduce.serving.errors import RequestError
from transduce.serving.options import Options
from transduce.serving.parameters import Parameters, missing, read_parameters
from transduce.serving.sentences import Splitting
from transduce.serving.server import Server

_MOST_GLOSSARIES = 5  # that may be used at once
_FORMATS: dict[str, Literal["text", "html", "xml"]] = {"": "text", "html": "html", "xml": "xml"}
SPLITTING: dict[str, Splitting] = {"0": "none", "1": "all", "nonewlines": "sentences"}
FORMALITY = ("default", "prefer_less", "prefer_more")
_UNSUPPORTED = ("style_id", "translation_memory_id", "custom_instructions")


def admission(server: Server) -> Callable[[Request], Awaitable[Parameters]]:
    """Return what checks the key of a request, from its header or a parameter, and reads its parameters."""

    async def admitted(request: Request) -> Parameters:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if key and scheme.lower() in ("deepl-auth-key", "bearer"):
            server.admit(request, key.strip())
            return await read_parameters(request)
        parameters = await read_parameters(request)
        server.admit(request, parameters.text("auth_key") or None)
        return parameters

    return admitted


def languages_of(server: Server, parameters: Parameters) -> tuple[str | None, str | None]:
    """Return the codes of the languages; the source may be missing, and a server may know none."""
    source, target = parameters.text("source_lang") or None, parameters.text("target_lang") or None
    if target is None and server.directions.targets:
        raise missing("target_lang")
    return source, target


def text_options(server: Server, parameters: Parameters, source: str | None, target: str | None) -> Options:
    """Return what a client asks for about texts."""
    style = parameters.choice("tag_handling", [*_FORMATS], "")
    parameters.flag("preserve_formatting", False)  # it always is
    # Line breaks in HTML are white space.
    usual = "nonewlines" if style == "html" else "1"
    return Options(
        format=_FORMATS[style],
        terms=terms_of(server, parameters, source, target),
        guard=server.settings.guard,
        splitting=SPLITTING[parameters.choice("split_sentences", [*SPLITTING], usual)],
        ignore_tags=parameters.names("ignore_tags"),
        splitting_tags=parameters.names("splitting_tags"),
        non_splitting_tags=parameters.names("non_splitting_tags"),
        outline_detection=parameters.flag("outline_detection", True),
    )


def terms_of(
    server: Server, parameters: Parameters, source: str | None, target: str | None
) -> tuple[tuple[str, str], ...]:
    """Return the terms of the glossaries that a client names; refuse what there is no model for."""
    parameters.choice("formality", FORMALITY, "default")
    for name in _UNSUPPORTED:
        if parameters.values.get(name):
            raise RequestError(f"{name} is not supported by this server", "leave it out")
    one, several = parameters.text("glossary_id"), parameters.names("glossary_ids")
    ids = [one] if one else list(several)
    if (one and several) or len(ids) > _MOST_GLOSSARIES:
        raise RequestError("too many glossaries", f"name one, or up to {_MOST_GLOSSARIES} in glossary_ids")
    if ids and source is None and server.directions.sources:
        raise RequestError("a glossary needs source_lang", "name the source language")
    glossaries = [server.glossaries.get(glossary_id) for glossary_id in ids]
    # The first glossary that has a term decides.
    terms = {
        term: translation
        for glossary in reversed(glossaries)
        for term, translation in glossary.terms(source, target)
    }
    return tuple(terms.items())
