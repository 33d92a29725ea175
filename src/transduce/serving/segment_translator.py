"""Sentences through the running batches: glossaries, placeholders and the guard."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from transduce.decoding.glossary import Glossary
from transduce.decoding.guard import choose as choose_better
from transduce.decoding.guard import copies_are_wrong, findings, remedy_settings
from transduce.decoding.translation import Candidate, Translation
from transduce.decoding.translator import Translator
from transduce.serving.alignment import links_of
from transduce.serving.directions import Direction
from transduce.serving.options import Options
from transduce.serving.results import Sentence, TranslationWarning
from transduce.serving.scheduler import Scheduler
from transduce.serving.segments import Segment, TranslatedSegment

_LEAST_RELATIVE_CONFIDENCE = 0.5  # of a translation that was made to contain something
_MOST_PHRASES = 32  # of glossaries and protected parts in a sentence: each widens the beam
_MOST_PROTECTED = 8  # parts that are enforced by constraints: a text may consist of placeholders
_INLINE = 8  # so few sentences are tokenized at once; more would delay other requests


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
        warnings: list[TranslationWarning] = []
        if self._options.guard:
            translation, warnings = await self._guarded(segment, translation, number)
        if segment.missing_protected(translation.text):
            segment, translation = await self._with_protected(segment, translation)
        if translation.pieces > 1 and segment.markers:
            warnings.append(
                TranslationWarning(
                    "placeholder", "the sentence was split: markup may be out of place", number
                )
            )
        best = translation.candidates[0] if translation.candidates else None
        hits = self._hits(segment)
        lost = [target for _, target in hits if best and target.lower() not in best.text.lower()]
        warnings += [
            TranslationWarning("glossary", f"the translation lacks {target!r} of the glossary", number)
            for target in lost
        ]
        links = links_of(self._translator, translation, best) if best else []
        others = [
            self._other(segment, translation, candidate)
            for candidate in translation.candidates[1:]
            if not segment.missing_protected(candidate.text)
        ]
        return Sentence(segment, translation, links, warnings, hits, others)

    def _other(self, segment: Segment, translation: Translation, candidate: Candidate) -> TranslatedSegment:
        links = links_of(self._translator, translation, candidate) if segment.markers else []
        return TranslatedSegment(candidate.text, links, segment=segment)

    async def _guarded(
        self, segment: Segment, translation: Translation, number: int
    ) -> tuple[Translation, list[TranslationWarning]]:
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
            TranslationWarning(finding.kind, f"the translation {finding.message}", number)
            for finding in better.findings
        ]

    async def _with_protected(self, segment: Segment, first: Translation) -> tuple[Segment, Translation]:
        """Find a translation that contains the protected parts: by constraints, else without them.

        Without them, they are placed where the alignment says. A constraint may ruin the sentence of a model
        that does not know such words: its translation must be about as probable as the ``first`` one.
        """
        target = self._translator.tokenizer.target
        encoded = target.encode(segment.protected)
        is_feasible = len(set(segment.protected)) <= _MOST_PROTECTED
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


def _confidence(translation: Translation) -> float:
    return translation.candidates[0].confidence if translation.candidates else 0.0
