"""Everything that the APIs of one server process share."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from transduce.errors import DependencyError
from transduce.serving.access import Keys, RateLimit, read_keys
from transduce.serving.data_folder import prepare_data
from transduce.serving.directions import Direction, Directions
from transduce.serving.document_jobs import DocumentJobs, DocumentState
from transduce.serving.documents import FORMATS
from transduce.serving.errors import ForbiddenError, GoneError, RequestError, TooLargeError, UnavailableError
from transduce.serving.glossaries import GlossaryStore
from transduce.serving.languages import Detected, Detector
from transduce.serving.model_store import ModelStore
from transduce.serving.options import Options
from transduce.serving.results import TranslatedText
from transduce.serving.scheduler import Scheduler
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings

T = TypeVar("T")
_SURE = 0.9  # confidence that a text is in the target language already
_QUICK = 2000  # characters whose language is detected at once; more would delay other requests


class Server:
    """The models, the batches, and who may use them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.directions = Directions.of(settings.models)
        self.keys, self.rate = Keys(read_keys(settings.key_file)), RateLimit(settings.rate)
        threads = settings.threads or max(1, (os.cpu_count() or 1) // settings.workers)
        scheduler = Scheduler(threads)
        self.store = ModelStore(settings, scheduler.release)
        self.service = Service(self.store, scheduler, settings.max_waiting)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.data = prepare_data(settings.data or self._make_temporary())
        self.glossaries = GlossaryStore(self.data / "glossaries")
        self.documents = DocumentJobs(self.data / "documents", self.service)
        self._stopped: float | None = None  # when
        self.characters = 0  # translated since the start
        if not settings.lazy:
            for direction in self.directions.all:
                self.store.load_now(direction)

    @property
    def document_kinds(self) -> list[str]:
        """The endings of the documents that can be translated."""
        return list(FORMATS)

    @cached_property
    def detector(self) -> Detector | None:
        """What tells the language of a text; ``None`` if the extra is not installed."""
        try:
            return Detector(sorted({*self.directions.sources, *self.directions.targets}))
        except DependencyError:
            return None

    def admit(self, request: Request, key: str | None) -> None:
        """Check the key of a request and count it for its caller; called once by every API."""
        if self.is_stopping:
            raise UnavailableError("the server is stopping", "try again when it has been restarted")
        origins = self.settings.origins
        is_foreign = request.headers.get("sec-fetch-site") == "cross-site"
        if is_foreign and not {"*", request.headers.get("origin")} & {*origins}:
            # Browsers send forms of other sites without asking first.
            raise ForbiddenError("pages of other sites may not call this server", "allow them with --cors")
        address = request.client.host if request.client else "-"
        self.rate.check(f"address {address}")
        self.keys.check(key)
        if key and self.keys.are_required:
            self.rate.check(f"key {key}")

    def check_texts(self, texts: Sequence[str], *, are_terms: bool = False) -> None:
        """Refuse texts over the limits, and what is not text; a glossary has limits of its own."""
        limits = self.settings
        if len(texts) > limits.max_items and not are_terms:
            raise TooLargeError(
                f"the request has {len(texts):,} texts, but {limits.max_items:,} are allowed",
                "send fewer at a time",
            )
        characters = sum(map(len, texts))
        if characters > limits.max_characters and not are_terms:
            raise TooLargeError(
                f"the request has {characters:,} characters, but {limits.max_characters:,} are allowed",
                "send less at a time, or send a document",
            )
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise RequestError("a text contains half of a surrogate pair", "send valid Unicode") from None

    def detect(self, text: str) -> list[Detected]:
        """Return the source languages that a text may be in, most likely first."""
        sources = self.directions.sources
        if len(sources) == 1:
            return [Detected(sources[0], 1.0)]
        if self.detector is None:
            raise RequestError("this server cannot detect languages", "name the source language")
        if not text.strip():
            return [Detected(code, 0.0) for code in sources]
        return self.detector.detect(text, sources)

    async def directions_of(
        self, texts: Sequence[str], source: str | None, target: str | None
    ) -> list[tuple[Direction, Detected | None]]:
        """Return the direction of each text and, if the source language was not given, what was detected."""
        if source is not None and source.lower() != "auto":
            return [(self.directions.find(source, target), None)] * len(texts)
        if not self.directions.sources:
            return [(self.directions.find(None, target), None)] * len(texts)
        if sum(map(len, texts)) < _QUICK:
            return [self._detected_direction(text, target) for text in texts]
        return await asyncio.to_thread(lambda: [self._detected_direction(text, target) for text in texts])

    def _detected_direction(self, text: str, target: str | None) -> tuple[Direction, Detected]:
        """Detect the language of a text that is to be translated.

        A text stays as it is if it surely is in the target language. A word or two are never sure; who asks
        for a translation probably needs one.
        """
        first, *others = self.detect(text)
        direction = self.directions.find_detected(first.code, target)
        if direction.is_identity and first.confidence < _SURE:
            for other in others:
                with suppress(RequestError):
                    return self.directions.find(other.code, target), other
        return direction, first

    async def translate(
        self, texts: Sequence[str], directions: Sequence[Direction], options: Options
    ) -> list[TranslatedText]:
        """Translate each text in its own direction, within the limit of time."""
        self.check_texts(texts)
        by_direction: dict[Direction, list[int]] = {}
        results: dict[int, TranslatedText] = {}
        for number, direction in enumerate(directions):
            if direction.is_identity:
                results[number] = TranslatedText(texts[number], [], [])
            else:
                by_direction.setdefault(direction, []).append(number)

        async def work() -> None:
            for direction, numbers in by_direction.items():
                found = await self.service.translate([texts[n] for n in numbers], direction, options)
                results.update(zip(numbers, found, strict=True))

        await self.in_time(work())
        self.characters += sum(map(len, texts))
        return [results[number] for number in range(len(texts))]

    async def stream(
        self, texts: Sequence[str], directions: Sequence[Direction], options: Options
    ) -> AsyncGenerator[TranslatedText]:
        """Yield the translation of each text, in order, as soon as it is there; each within the time."""
        for direction, pairs in groupby(zip(texts, directions, strict=True), key=itemgetter(1)):
            together = [text for text, _ in pairs]
            if direction.is_identity:
                for text in together:
                    yield TranslatedText(text, [], [])
                continue
            async with aclosing(self.service.stream(together, direction, options)) as results:
                for text in together:
                    yield await self.in_time(anext(results))
                    self.characters += len(text)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Await ``work`` as long as a request may take."""
        try:
            return await asyncio.wait_for(work, self.settings.timeout)
        except asyncio.TimeoutError:  # in Python 3.10, not the built-in one
            raise UnavailableError(
                f"the translation took more than {self.settings.timeout:g} s",
                "send less at a time, or send a document",
            ) from None

    async def start_document(
        self,
        name: str,
        content: bytes,
        source: str | None,
        target: str | None,
        options: Options | None = None,
    ) -> DocumentState:
        """Accept a document; its language is detected from its beginning if it is not given."""
        is_detected = (source is None or source.lower() == "auto") and len(self.directions.sources) > 1
        sample = await self.documents.beginning(name, content) if is_detected else ""
        ((direction, _),) = await self.directions_of([sample], source, target)
        if direction.is_identity:
            raise RequestError(f"the document is in {target} already", "name its source language")
        state = await self.documents.start(
            name, content, direction, options or Options(guard=self.settings.guard)
        )
        self.characters += state.characters
        return state

    def document_answer(self, document_id: str, key: str) -> Response:
        """Return the answer with a translated document."""
        name, content = self.documents.result(document_id, key)
        disposition = f"attachment; filename*=UTF-8''{quote(name, errors='replace')}"
        return Response(
            content, media_type="application/octet-stream", headers={"Content-Disposition": disposition}
        )

    @property
    def is_stopping(self) -> bool:
        """Whether requests are no longer accepted."""
        return self._stopped is not None

    def stop(self) -> None:
        """Accept no more requests; what was accepted has as much time as any request."""
        if self._stopped is None:
            self._stopped = time.monotonic()

    async def finish(self) -> None:
        """Finish the documents under way, as far as there is time."""
        self.stop()
        await self.documents.finish(self.settings.timeout - (time.monotonic() - (self._stopped or 0.0)))

    def _make_temporary(self) -> Path:
        self._temporary = tempfile.TemporaryDirectory(prefix="transduce-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def close(self) -> None:
        """Stop computing, and remove temporary files."""
        self.service.scheduler.close()
        if self._temporary is not None:
            self._temporary.cleanup()


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await ``work``, but cancel it when the client goes away."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise GoneError("the client has gone", "send the request again")
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
