"""From texts to translations: segments, glossaries, placeholders and the guard around the running batches."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from transduce.decoding.glossary import Glossary
from transduce.decoding.guard import choose as choose_better
from transduce.decoding.guard import copies_are_wrong, findings, remedy_settings
from transduce.decoding.translation import Candidate, Translation
from transduce.decoding.translator import Translator
from transduce.serving.admission import Admissions
from transduce.serving.alignment import links_of
from transduce.serving.directions import Direction
from transduce.serving.html_layout import html_layout
from transduce.serving.layout import Layout
from transduce.serving.model_store import ModelStore
from transduce.serving.plain_layout import plain_layout
from transduce.serving.scheduler import BULK, Scheduler
from transduce.serving.segments import Link, Segment, TranslatedSegment
from transduce.serving.sentences import Splitting

_CHUNK = 64  # sentences of a large request that are prepared and queued together
_CHUNKS_AT_A_TIME = 4
_LEAST_RELATIVE_CONFIDENCE = 0.5  # of a translation that was made to contain something
_DOCUMENTS = 10  # times as many sentences of documents may wait as of other requests
_MOST_PHRASES = 32  # that a sentence is made to contain: each widens the beam
_MOST_CONSTRAINTS = 8  # of a sentence: each widens the beam, and a text may consist of placeholders
_INLINE = 8  # so few sentences are tokenized at once; more would delay other requests


@dataclass(frozen=True)
class Options:
    """What a client asks for, apart from the languages."""

    format: Literal["text", "html", "xml"] = "text"
    candidates: int = 1
    alignment: bool = False
    terms: tuple[tuple[str, str], ...] = ()  # of a glossary
    do_not_translate: tuple[str, ...] = ()
    guard: bool = True
    splitting: Splitting = "all"
    ignore_tags: tuple[str, ...] = ()
    splitting_tags: tuple[str, ...] = ()
    non_splitting_tags: tuple[str, ...] = ()
    outline_detection: bool = True  # of XML: whether tags that split sentences are found in the text


@dataclass(frozen=True)
class Warning:  # noqa: A001 (what clients call it)
    """Something that a client should know about a translation."""

    kind: Literal["repetition", "copy", "length", "truncated", "glossary", "placeholder"]
    message: str
    sentence: int


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text, and its translations, best first."""

    segment: Segment
    text: str  # as the model wrote it, without the markup of its source
    translation: Translation
    links: list[Link]
    warnings: list[Warning]
    hits: list[tuple[str, str]]  # terms of the glossary that its source contains
    others: list[TranslatedSegment]  # its other translations, best first


@dataclass(frozen=True)
class TranslatedText:
    """The translation of a text, with what is known about it."""

    text: str
    sentences: list[Sentence]
    spans: list[tuple[int, int]]  # of each sentence in the translation
    alternatives: list[str] = field(default_factory=list)  # with the next best translations of all sentences

    @property
    def warnings(self) -> list[Warning]:
        """The warnings of all sentences."""
        return [warning for sentence in self.sentences for warning in sentence.warnings]

    @property
    def hits(self) -> list[tuple[str, str]]:
        """The glossary's terms that were found, without repetitions."""
        return list(dict.fromkeys(hit for sentence in self.sentences for hit in sentence.hits))

    @property
    def confidence(self) -> float:
        """The lowest confidence of a sentence; 1 if there is nothing to translate."""
        scores = [s.translation.candidates[0].confidence for s in self.sentences if s.translation.candidates]
        return min(scores, default=1.0)


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


class SegmentTranslator:
    """Translates the segments of one request."""

    def __init__(
        self,
        scheduler: Scheduler,
        translator: Translator,
        direction: Direction,
        options: Options,
        is_bulk: bool,
    ) -> None:
        self._scheduler, self._options, self._is_bulk = scheduler, options, is_bulk
        languages = direction.source, direction.target
        self._copies_are_wrong = None not in languages and copies_are_wrong([], languages)
        self._translator = translator
        if options.terms:
            self._translator = replace(translator, glossary=Glossary(options.terms))

    async def translate(self, segments: Sequence[Segment], first: int) -> list[Sentence]:
        """Translate segments; ``first`` is the number of the first one in its text, for warnings."""
        translations = await self._search(self._translator, segments)
        pairs = enumerate(zip(segments, translations, strict=True), first)
        # Those that are searched for again are so at the same time.
        return await asyncio.gather(*(self._finish(*pair, number) for number, pair in pairs))

    async def _search(self, translator: Translator, segments: Sequence[Segment]) -> list[Translation]:
        lines = [segment.text for segment in segments]
        is_small = len(lines) <= _INLINE
        split = translator.split(lines) if is_small else await asyncio.to_thread(translator.split, lines)
        pieces = [
            replace(piece, phrases=piece.phrases[:_MOST_PHRASES]) for line in split for piece in line.pieces
        ]
        aligned = self._options.alignment or any(segment.markers for segment in segments)
        found = iter(await self._scheduler.search(translator, pieces, is_bulk=self._is_bulk, aligned=aligned))
        return [translator.assemble(line, [next(found) for _ in line.pieces]) for line in split]

    async def _finish(self, segment: Segment, translation: Translation, number: int) -> Sentence:
        """Look at a translation, and search again where something is wrong with it."""
        warnings: list[Warning] = []
        if self._options.guard:
            translation, warnings = await self._guarded(segment, translation, number)
        if segment.missing_protected(translation.text):
            segment, translation = await self._with_protected(segment, translation)
        if translation.pieces > 1 and segment.markers:
            warnings.append(
                Warning("placeholder", "the sentence was split: markup may be out of place", number)
            )
        best = translation.candidates[0] if translation.candidates else None
        hits = self._hits(segment)
        lost = [target for _, target in hits if best and target.lower() not in best.text.lower()]
        warnings += [
            Warning("glossary", f"the translation lacks {target!r} of the glossary", number)
            for target in lost
        ]
        links = links_of(self._translator, translation, best) if best else []
        others = [
            self._other(segment, translation, candidate)
            for candidate in translation.candidates[1:]
            if not segment.missing_protected(candidate.text)
        ]
        return Sentence(segment, translation.text, translation, links, warnings, hits, others)

    def _other(self, segment: Segment, translation: Translation, candidate: Candidate) -> TranslatedSegment:
        links = links_of(self._translator, translation, candidate) if segment.markers else []
        return TranslatedSegment(candidate.text, links, segment=segment)

    async def _guarded(
        self, segment: Segment, translation: Translation, number: int
    ) -> tuple[Translation, list[Warning]]:
        if not translation.candidates:
            return translation, []
        best, copies = translation.candidates[0], self._copies_are_wrong
        found = findings(segment.text, best, translation.source_tokens, copies=copies)
        if not found:
            return translation, []
        settings = remedy_settings(self._translator.settings, found, translation)
        (second,) = await self._search(replace(self._translator, settings=settings), [segment])
        better = choose_better(replace(translation, findings=found), second, copies=copies)
        return better, [
            Warning(finding.kind, f"the translation {finding.message}", number) for finding in better.findings
        ]

    async def _with_protected(self, segment: Segment, first: Translation) -> tuple[Segment, Translation]:
        """Find a translation that contains the protected parts: by constraints, else without them.

        Without them, they are placed where the alignment says. A constraint may ruin the sentence of a model
        that does not know such words: its translation must be about as probable as the ``first`` one.
        """
        target = self._translator.tokenizer.target
        encoded = target.encode(segment.protected)
        is_feasible = len(set(segment.protected)) <= _MOST_CONSTRAINTS
        if is_feasible and all(
            target.decode(ids) == part for part, ids in zip(segment.protected, encoded, strict=True)
        ):
            glossary = Glossary(self._options.terms, always=tuple(dict.fromkeys(segment.protected)))
            constrained = replace(self._translator, glossary=glossary)
            (translation,) = await self._search(constrained, [segment])
            is_probable = _confidence(translation) >= _LEAST_RELATIVE_CONFIDENCE * _confidence(first)
            if is_probable and not segment.missing_protected(translation.text):
                return segment, translation
        segment = segment.without_protected()
        if not segment.text.strip():
            return segment, Translation(segment.text, [])
        (translation,) = await self._search(self._translator, [segment])
        return segment, translation

    def _hits(self, segment: Segment) -> list[tuple[str, str]]:
        glossary = self._translator.glossary
        return glossary.terms_in(segment.text) if glossary else []


def _render(layout: Layout, sentences: list[Sentence]) -> TranslatedText:
    best = [
        TranslatedSegment(sentence.text, sentence.links, segment=sentence.segment) for sentence in sentences
    ]
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


def _confidence(translation: Translation) -> float:
    return translation.candidates[0].confidence if translation.candidates else 0.0
