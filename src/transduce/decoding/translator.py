"""Lines in, translations out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from transduce import artifact
from transduce.data.tokenizer import Tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.penalties import paper_penalty
from transduce.models.protocol import SequenceModel

LINES = 2000  # that are sorted by length at a time
TOKENS = 4096  # in a batch: sentences × the longest


@dataclass(frozen=True)
class Candidate:
    """One way to say it."""

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]  # a token each, and the end


@dataclass(frozen=True)
class Translation:
    """A line and what became of it, best first; of an empty line, nothing."""

    source: str
    candidates: list[Candidate]

    @property
    def text(self) -> str:
        """The best one."""
        return self.candidates[0].text if self.candidates else ""


@dataclass(frozen=True)
class Translator:
    """A model and its tokenizer, with the settings of section 6.1."""

    model: SequenceModel[Any, Any]
    tokenizer: Tokenizer
    beam: int = 4
    nbest: int = 1
    length_penalty: float = 0.6
    extra_length: int = 50  # a target may be so much longer than its source, in tokens
    warn: Callable[[str], None] = lambda _: None

    @classmethod
    def load(cls, folder: str | Path, **settings: object) -> "Translator":
        """From a model folder."""
        return cls(artifact.load(folder), artifact.load_tokenizer(folder), **settings)  # type: ignore[arg-type]

    def translate(self, lines: Iterable[str], *, ahead: int = LINES) -> Iterator[Translation]:
        """One translation for every line, in order; so many lines are read ``ahead`` and sorted by length."""
        iterator = iter(lines)
        while chunk := list(islice(iterator, ahead)):
            yield from self._translate_chunk(chunk)

    def _translate_chunk(self, lines: list[str]) -> list[Translation]:
        found: list[Translation] = [Translation(line, []) for line in lines]
        sources = self.tokenizer.encode_source(lines)
        # Of nothing but white space, only ``eos`` is left.
        order = sorted(
            (index for index, ids in enumerate(sources) if len(ids) > 1), key=lambda i: len(sources[i])
        )
        for rows in _batches(order, [len(ids) for ids in sources]):
            sentences = [self._fit(sources[row], lines[row]) for row in rows]
            for row, hypotheses in zip(rows, self._search(sentences), strict=True):
                candidates = [self._read(one) for one in hypotheses[: self.nbest]]
                found[row] = Translation(lines[row], candidates)
        return found

    def _fit(self, ids: list[int], line: str) -> list[int]:
        """What the model can read of a sentence."""
        most = self.model.max_length
        if most is None or len(ids) <= most:
            return ids
        self.warn(f"a line of {len(ids)} tokens was cut to the model's {most}: {line[:60]!r} ...")
        return [*ids[: most - 1], self.tokenizer.vocabulary.eos]

    def _search(self, sentences: list[list[int]]) -> list[list[Hypothesis]]:
        vocabulary, most = self.tokenizer.vocabulary, self.model.max_length
        source = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in sentences], batch_first=True, padding_value=vocabulary.pad
        ).to(self.model.device)
        limits = [
            min(len(ids) + self.extra_length, most or len(ids) + self.extra_length) for ids in sentences
        ]
        return beam_search(
            self.model,
            source,
            limits,
            beam=max(self.beam, self.nbest),
            penalty=paper_penalty(self.length_penalty),
        )

    def _read(self, hypothesis: Hypothesis) -> Candidate:
        backend = self.tokenizer.target.backend
        return Candidate(
            self.tokenizer.decode(hypothesis.tokens),
            hypothesis.score,
            [backend.id_to_token(token) or "" for token in hypothesis.tokens],
            hypothesis.log_probabilities,
        )


def _batches(order: list[int], lengths: list[int]) -> Iterator[list[int]]:
    """Rows of like length, as many as there is room for."""
    batch: list[int] = []
    for row in order:
        if batch and (len(batch) + 1) * lengths[row] > TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
