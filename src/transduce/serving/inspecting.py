"""What the page asks for beyond translations: other ways to go on, and the attention of one sentence."""

import asyncio
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.inspection.capture import inspect
from transduce.serving.directions import Direction
from transduce.serving.errors import RequestError, TooLargeError
from transduce.serving.service import Service

_WAYS = 8  # next tokens that are tried
_LONGEST_WORD = 20  # characters; what is longer is written without spaces
_MOST_TOKENS = 200  # of a sentence whose attention is shown: the page grows with the square
_LONGEST_PREFIX = 500  # tokens of a translation that is kept; each is a step of a search
# The page is one file with its own styles and scripts, and may be shown in a frame of the server's page only.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)


class AttentionPage(NamedTuple):
    """A page and the Content-Security-Policy it is sent with."""

    html: str
    policy: str


async def alternatives(
    service: Service, direction: Direction, text: str, prefix: str
) -> list[dict[str, Any]]:
    """Return translations of a sentence that begin with ``prefix`` and go on differently, best first.

    The most probable next tokens are found first; then the best translation with each of them.
    """
    kept = prefix.rstrip()
    async with service.store.use(direction) as translator:
        settings = replace(translator.settings, nbest=1, too_long="cut")
        begun = replace(translator, settings=settings, prefix=kept)
        (line,) = begun.split([text])
        piece = line.pieces[0]
        if piece.is_blank:
            return []
        if len(piece.prefix) > _LONGEST_PREFIX:
            raise TooLargeError(f"the prefix has more than {_LONGEST_PREFIX} tokens", "send one sentence")
        one_more = replace(begun, settings=replace(settings, beam=_WAYS, nbest=_WAYS, max_length=1))
        (found,) = await service.scheduler.search(one_more, [piece], is_bulk=False)
        nexts = [hypothesis.tokens for hypothesis in found if len(hypothesis.tokens) > len(piece.prefix)]
        pieces = [replace(piece, prefix=tokens) for tokens in nexts]
        searched = await service.scheduler.search(begun, pieces, is_bulk=False)
        lines = [replace(line, pieces=[each]) for each in pieces]
        ways = [begun.assemble(one, [best]) for one, best in zip(lines, searched, strict=True)]
    answers: dict[str, dict[str, Any]] = {}
    for candidate in sorted((way.candidates[0] for way in ways if way.candidates), key=lambda c: -c.score):
        following = _next_word(candidate.text, kept)
        if following:
            answer = {"text": candidate.text, "next": following, "confidence": round(candidate.confidence, 4)}
            answers.setdefault(following, answer)
    return list(answers.values())


def _next_word(text: str, prefix: str) -> str:
    """Return the word with which a translation goes on; in scripts without spaces, a few characters."""
    if not text.startswith(prefix):
        return ""
    words = text[len(prefix) :].split(maxsplit=1)
    return "" if not words else words[0] if len(words) > 1 or len(words[0]) <= _LONGEST_WORD else words[0][:4]


async def attention_page(service: Service, direction: Direction, text: str) -> AttentionPage:
    """Return the page of ``transduce inspect`` for a sentence."""
    async with service.store.use(direction) as translator, service.inspecting:
        html = await asyncio.to_thread(_inspect, translator, text)
    return AttentionPage(html, _POLICY)


def error_page(error: RequestError) -> AttentionPage:
    """Return a page that says why there is none, which can be shown in the same frame."""
    text = escape(f"{error.problem}: {error.remedy}.")
    style = ":root{color-scheme:light dark}body{font:16px system-ui,sans-serif;margin:2rem}"
    html = (
        f'<!DOCTYPE html><html lang="en"><title>Attention</title><style>{style}</style><p>{text}</p></html>'
    )
    return AttentionPage(html, _POLICY)


def _inspect(translator: Translator, text: str) -> str:
    (ids,) = translator.tokenizer.encode_source([text])
    if len(ids) > _MOST_TOKENS:
        raise TooLargeError(f"the sentence has more than {_MOST_TOKENS} tokens", "choose a shorter one")
    try:
        return inspect(translator, text).html()
    except (ConfigError, DataError) as error:
        raise RequestError(error.problem, error.remedy) from error
