"""Translated texts, sentence by sentence, with what is known about them."""

from dataclasses import dataclass, field
from typing import Literal

from transduce.decoding.translation import Translation
from transduce.serving.segments import Link, Segment, TranslatedSegment


@dataclass(frozen=True)
class TranslationWarning:
    """Something that a client should know about a translation."""

    kind: Literal["repetition", "copy", "length", "truncated", "glossary", "placeholder"]
    message: str
    sentence: int


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text, and its translations, best first."""

    segment: Segment
    translation: Translation
    links: list[Link]
    warnings: list[TranslationWarning]
    hits: list[tuple[str, str]]  # terms of the glossary that its source contains
    others: list[TranslatedSegment]  # its other translations, best first

    @property
    def best(self) -> TranslatedSegment:
        """Its best translation, ready for the layout."""
        return TranslatedSegment(self.translation.text, self.links, segment=self.segment)


@dataclass(frozen=True)
class TranslatedText:
    """The translation of a text, with what is known about it."""

    text: str
    sentences: list[Sentence]
    spans: list[tuple[int, int]]  # of each sentence in the translation
    alternatives: list[str] = field(default_factory=list)  # with the next best translations of all sentences

    @property
    def warnings(self) -> list[TranslationWarning]:
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
