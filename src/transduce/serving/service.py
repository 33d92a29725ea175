"""From texts to translations: layouts, chunks of sentences, and layouts again."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from transduce.decoding.translator import Translator
from transduce.serving.admission import Admissions
from transduce.serving.directions import Direction
from transduce.serving.html_layout import html_layout
from transduce.serving.layout import Layout
from transduce.serving.model_store import ModelStore
from transduce.serving.options import Options
from transduce.serving.plain_layout import plain_layout
from transduce.serving.results import Sentence, TranslatedText
from transduce.serving.scheduler import BULK, Scheduler
from transduce.serving.segment_translator import SegmentTranslator
from transduce.serving.segments import Segment

_CHUNK = 64  # sentences of a large request that are prepared and queued together
_CHUNKS_AT_A_TIME = 4
_DOCUMENTS = 10  # times as many sentences of documents may wait as of other requests


class Service:
    """Translates texts with the models of a `ModelStore`, on the threads of a `Scheduler`."""

    def __init__(self, store: ModelStore, scheduler: Scheduler, max_waiting: int) -> None:
        self.store, self.scheduler = store, scheduler
        self._foreground = Admissions(scheduler, max_waiting)
        self._background = Admissions(scheduler, _DOCUMENTS * max_waiting)
        self.inspecting = asyncio.Lock()  # one attention page at a time: they take much memory

    async def translate(
        self, texts: Sequence[str], direction: Direction, options: Options
    ) -> list[TranslatedText]:
        """Translate several texts with one model."""
        return [text async for text in self.stream(texts, direction, options)]

    async def stream(
        self, texts: Sequence[str], direction: Direction, options: Options
    ) -> AsyncGenerator[TranslatedText]:
        """Yield the translation of each text, in order, as soon as it is there."""
        layouts = [await self._layout(text, direction, options) for text in texts]
        segments = [segment for layout in layouts for segment in layout.segments]
        async with aclosing(self.sentences(segments, direction, options)) as sentences:
            for layout in layouts:
                yield _render(layout, [await anext(sentences) for _ in layout.segments])

    async def sentences(
        self,
        segments: Sequence[Segment],
        direction: Direction,
        options: Options,
        *,
        in_background: bool = False,
    ) -> AsyncGenerator[Sentence]:
        """Yield the translation of each segment, in order, as soon as it is there."""
        counter = self._background if in_background else self._foreground
        with counter.admitted(len(segments)) as admission:
            async with (
                self.store.use(direction) as translator,
                aclosing(self._sentences(translator, direction, segments, options)) as sentences,
            ):
                async for sentence in sentences:
                    admission.finish_one()
                    yield sentence

    @property
    def pending(self) -> int:
        """The number of sentences that were accepted and are not translated yet."""
        return self._foreground.pending + self._background.pending

    def require_room_in_background(self, count: int) -> None:
        """Raise a `BusyError` if so many sentences of a document cannot be accepted now."""
        self._background.require_room(count)

    async def _layout(self, text: str, direction: Direction, options: Options) -> Layout:
        make = partial(layout_of, text, direction.source, options)
        return make() if len(text) < 2000 else await asyncio.to_thread(make)

    async def _sentences(
        self, translator: Translator, direction: Direction, segments: Sequence[Segment], options: Options
    ) -> AsyncGenerator[Sentence]:
        """Yield translated sentences in order; a few chunks are under way at a time."""
        is_bulk = len(segments) > BULK
        chosen = translator
        if options.candidates != translator.settings.nbest:
            chosen = replace(translator, settings=replace(translator.settings, nbest=options.candidates))
        work = SegmentTranslator(self.scheduler, chosen, direction, options, is_bulk)
        chunks = [segments[begin : begin + _CHUNK] for begin in range(0, len(segments), _CHUNK)]
        tasks: list[asyncio.Task[list[Sentence]]] = []
        try:
            for index in range(len(chunks)):
                for chunk in chunks[len(tasks) : index + _CHUNKS_AT_A_TIME]:
                    tasks.append(asyncio.create_task(work.translate(chunk, len(tasks) * _CHUNK)))
                for sentence in await tasks[index]:
                    yield sentence
        finally:
            for task in tasks:
                task.cancel()
            # Their errors are those of a request that has failed or gone away.
            await asyncio.gather(*tasks, return_exceptions=True)


def layout_of(text: str, language: str | None, options: Options) -> Layout:
    """Return the sentences of a text, and what stands between them.

    Where the language is not known, lines are not split: they may be words, numbers or dates.
    """
    splitting = "lines" if language is None and options.splitting == "all" else options.splitting
    if options.format == "text":
        return plain_layout(text, language, options.do_not_translate, splitting)
    return html_layout(
        text,
        language,
        is_xml=options.format == "xml",
        ignore_tags=options.ignore_tags,
        splitting_tags=options.splitting_tags,
        non_splitting_tags=options.non_splitting_tags,
        outline_detection=options.outline_detection,
        do_not_translate=options.do_not_translate,
        splitting=splitting,
    )


def _render(layout: Layout, sentences: list[Sentence]) -> TranslatedText:
    best = [sentence.best for sentence in sentences]
    rendered = layout.render(best)
    alternatives = dict[str, None]()  # without repetitions, in order
    for rank in range(max((len(sentence.others) for sentence in sentences), default=0)):
        chosen = [
            sentence.others[rank] if rank < len(sentence.others) else first
            for sentence, first in zip(sentences, best, strict=True)
        ]
        alternatives[layout.render(chosen).text] = None
    alternatives.pop(rendered.text, None)
    return TranslatedText(rendered.text, sentences, rendered.spans, list(alternatives))
