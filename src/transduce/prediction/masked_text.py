"""A model of masked text at work: words for masks, vectors for texts, classes of texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce import artifact
from transduce.config import BERTConfig, Vocabulary
from transduce.data.batching import batches_by_length
from transduce.data.readable import readable
from transduce.data.text_files import require_utf8
from transduce.data.text_pairs import encode_lines, segments_of
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError, DataError

Pooling = Literal["mean", "cls", "pooler"]
LINES = 2000  # that are sorted by length at a time
TOKENS = 4096  # in a batch: texts × the longest


class Guess(NamedTuple):
    """What may stand in a place."""

    token: str
    probability: float
    text: str  # the whole text with it


class TextReader(Protocol):
    """What is needed of a model that reads whole texts."""

    config: BERTConfig
    vocabulary: Vocabulary

    def encode(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Tokens and their segments, (batch, length) each → (batch, length, d_model)."""
        ...

    def guesses(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the output layer reads, its matrix and its bias."""
        ...

    def pool(self, states: Tensor) -> Tensor:
        """(batch, length, d_model) → (batch, d_model)."""
        ...

    def classify(self, states: Tensor) -> Tensor:
        """(batch, length, d_model) → (batch, classes)."""
        ...


@dataclass(frozen=True)
class MaskedText:
    """A model and its tokenizer."""

    model: TextReader
    tokenizer: TokenizerPair
    warn: Callable[[str], None] = lambda _: None

    @classmethod
    def load(cls, folder: str | Path, warn: Callable[[str], None] = lambda _: None) -> "MaskedText":
        """From a model folder."""
        return cls(artifact.load_as(folder, "bert"), artifact.load_tokenizer(folder), warn)

    @torch.inference_mode()
    def fill(self, text: str, *, count: int = 5) -> list[list[Guess]]:
        """For each [MASK] of a text, the ``count`` likeliest tokens, each by itself."""
        require_utf8(text, "the text")
        special, side = self.model.vocabulary, self.tokenizer.source
        mask = side.id_of("[MASK]", "<mask>")
        ids = [special.bos, *side.encode([text])[0], special.eos]
        places = [place for place, token in enumerate(ids) if token == mask]
        if mask is None or not places:
            raise DataError(f"there is no [MASK] in {text!r}", "write one where a word is missing")
        others = (name for token, name in side.special.items() if token != mask and token in ids[1:-1])
        if meant := [name for name in others if name in text]:  # [UNK] may be there without being written
            raise DataError(f"the text holds {meant[0]}, which the model reads as no text", "leave it out")
        if len(ids) > self.model.config.max_length:
            raise DataError(
                f"the text is {len(ids)} tokens long, and the model reads {self.model.config.max_length}",
                "shorten it",
            )
        states = self.model.encode(torch.tensor([ids]))[0, places]
        chances = F.linear(*self.model.guesses(states)).softmax(dim=-1)
        best = chances.topk(min(count, chances.size(1)), dim=1)
        return [
            [
                Guess(readable(side, [token])[0], probability, self._with(ids, place, token))
                for token, probability in zip(tokens, probabilities, strict=True)
            ]
            for place, tokens, probabilities in zip(
                places, best.indices.tolist(), best.values.tolist(), strict=True
            )
        ]

    def _with(self, ids: list[int], place: int, token: int) -> str:
        """The text with this token there; other masks are still masks."""
        new = [*ids[1:place], token, *ids[place + 1 : -1]]
        text: str = self.tokenizer.source.backend.decode(new, skip_special_tokens=False)
        return text

    def embed(self, lines: Iterable[str], pooling: Pooling = "mean") -> Iterator[npt.NDArray[np.float32]]:
        """A vector (d_model,) for every line, in order: the mean of its tokens', that of [CLS], or pooled.

        A line is a text, or two with a tab between them.
        """

        def vectors(tokens: Tensor, states: Tensor) -> Tensor:
            if pooling == "pooler":
                return self.model.pool(states)
            if pooling == "cls":
                return states[:, 0]
            real = (tokens != self.model.vocabulary.pad)[:, :, None]
            return (states * real).sum(dim=1) / real.sum(dim=1)

        if pooling == "pooler":  # a model without one says so before anything is read
            self.model.pool(torch.zeros(1, 1, self.model.config.d_model))
        return (row.numpy() for row in self._rows(lines, vectors))

    def classify(self, lines: Iterable[str]) -> Iterator[dict[str, float]]:
        """For every line, a text or two, the probabilities of its classes, the likeliest first."""
        classes = self.model.config.classes
        if not classes:
            raise ConfigError("the model tells no classes", "teach it some: transduce mlm finetune")
        rows = self._rows(lines, lambda tokens, states: self.model.classify(states))
        chances = (zip(classes, row.softmax(dim=-1).tolist(), strict=True) for row in rows)
        return (dict(sorted(each, key=lambda item: -item[1])) for each in chances)

    def _rows(self, lines: Iterable[str], compute: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
        """A row of what is computed for every line, from its tokens and their states, in order."""
        special = self.model.vocabulary
        iterator = iter(lines)
        while chunk := list(islice(iterator, LINES)):
            texts = self._encode(chunk)
            found: list[Tensor] = [torch.empty(0)] * len(texts)
            for batch in batches_by_length([len(ids) for ids in texts], TOKENS):
                tokens = torch.nn.utils.rnn.pad_sequence(
                    [torch.tensor(texts[row]) for row in batch],
                    batch_first=True,
                    padding_value=special.pad,
                )
                with torch.inference_mode():
                    states = self.model.encode(tokens, segments_of(tokens, special))
                    for row, computed in zip(batch, compute(tokens, states), strict=True):
                        found[row] = computed
            yield from found

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        special, config = self.model.vocabulary, self.model.config
        rows, cut = encode_lines(lines, self.tokenizer.source, special.eos, config)
        if cut:
            most = config.max_length - 2
            self.warn(f"{cut:,} of {len(rows):,} lines are longer than {most} tokens and were cut")
        return [[special.bos, *ids, special.eos] for ids in rows]
