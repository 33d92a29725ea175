"""What the page asks for beyond translations: other ways to go on, and the attention of one sentence."""

import asyncio
from dataclasses import replace
from typing import Any, NamedTuple

from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.inspection.capture import inspect
from transduce.serving.directions import Direction
from transduce.serving.errors import RequestError, TooLargeError
from transduce.serving.service import Service

_WAYS = 6  # alternatives that are searched for
_DIVERSITY = 1.0
_MOST_TOKENS = 200  # of a sentence whose attention is shown: the page grows with the square
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
    """Return translations of a sentence that begin with ``prefix`` and go on differently, best first."""
    async with service.store.use(direction) as translator:
        settings = SearchSettings(
            beam=_WAYS, nbest=_WAYS, diverse_groups=_WAYS, diversity=_DIVERSITY, too_long="cut"
        )
        diverse = replace(translator, settings=settings, prefix=prefix, on_warning=_ignore)
        (line,) = diverse.split([text])
        found = await service.scheduler.search(diverse, line.pieces, is_bulk=False)
        candidates = diverse.assemble(line, found).candidates
    ways: dict[str, dict[str, Any]] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        if not candidate.text.startswith(prefix.rstrip()):
            continue
        rest = candidate.text[len(prefix.rstrip()) :]
        following = " ".join(rest.split()[:1]) if " " in rest.strip() else rest.strip()[:8]
        answer = {
            "text": candidate.text,
            "next": following,
            "confidence": round(candidate.confidence, 4),
        }
        ways.setdefault(following, answer)
    return list(ways.values())


async def attention_page(service: Service, direction: Direction, text: str) -> AttentionPage:
    """Return the page of ``transduce inspect`` for a sentence."""
    async with service.store.use(direction) as translator, service.inspecting:
        html = await asyncio.to_thread(_inspect, translator, text)
    return AttentionPage(html, _POLICY)


def _inspect(translator: Translator, text: str) -> str:
    (ids,) = translator.tokenizer.encode_source([text])
    if len(ids) > _MOST_TOKENS:
        raise TooLargeError(f"the sentence has more than {_MOST_TOKENS} tokens", "choose a shorter one")
    try:
        return inspect(translator, text).html()
    except (ConfigError, DataError) as error:
        raise RequestError(error.problem, error.remedy) from error


def _ignore(message: str) -> None:
    """Take no notice: the client sees the results."""
