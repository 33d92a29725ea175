"""A masked language model in use: fill masks, embed texts, classify texts."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce import artifact
from transduce.data.batching import batches_by_length, pad_rows
from transduce.data.readable import readable
from transduce.data.text_files import require_utf8
from transduce.data.text_pairs import encode_lines, segments_of
from transduce.data.tokenizer import TokenizerPair
from transduce.engine.precision import for_inference, summarize
from transduce.errors import ConfigError, DataError
from transduce.models.bert import BERT
from transduce.models.protocol import Precision
from transduce.nn.heads import pool_tokens

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len", "pooler"]
Vectors: TypeAlias = npt.NDArray[np.float32]
LOOKAHEAD = 2000  # lines that are read at a time and sorted by length
BATCH_TOKENS = 4096  # texts × the longest


class MaskFilling(NamedTuple):
    """A token that may stand for a mask."""

    token: str
    probability: float
    text: str  # the whole text with this token


class EncodedBatch(NamedTuple):
    """Some of the lines of a chunk, encoded together."""

    rows: list[int]  # their places in the chunk
    tokens: Tensor  # (rows, length)
    states: Tensor  # (rows, length, d_model)


@dataclass(frozen=True)
class MaskedTextModel:
    """A BERT and its tokenizer. A line is one text, or two texts separated by a tab.

    ``MaskedTextModel.load("runs/tales-bert/final")`` takes a trained model:
    ``model.fill("The [MASK] sat.")[0][0].token`` is the most likely word,
    ``model.embed(["A man sleeps.", "Two dogs run."])`` is (2, d_model).
    """

    model: BERT
    tokenizer: TokenizerPair
    on_warning: Callable[[str], None] | None = None  # receives warnings instead of Python's `warnings`

    def __repr__(self) -> str:
        return f"MaskedTextModel({summarize(self.model)}, {self.tokenizer!r})"

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        precision: Precision = "auto",
        device: str = "auto",
        on_warning: Callable[[str], None] | None = None,
    ) -> "MaskedTextModel":
        """Load the model in a model folder."""
        model = for_inference(artifact.load_as(folder, "bert"), precision, device)
        return cls(model, artifact.load_tokenizer(folder), on_warning)

    @torch.inference_mode()
    def fill(self, text: str, *, count: int = 5) -> list[list[MaskFilling]]:
        """Return the ``count`` most likely tokens for each [MASK] of a text, each predicted independently."""
        ids, places = self._encode_masked(text)
        states = self.model.encode(torch.tensor([ids], device=self.model.device))[0, places]
        hidden, matrix, bias = self.model.masked_token_projection(states)
        probabilities = F.linear(hidden, matrix, bias).float().softmax(dim=-1)
        best = probabilities.topk(min(count, probabilities.size(1)), dim=1)
        return [
            [
                MaskFilling(
                    readable(self.tokenizer.source, [token])[0], value, self._replaced(ids, place, token)
                )
                for token, value in zip(tokens, values, strict=True)
            ]
            for place, tokens, values in zip(places, best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def embed(
        self, texts: str | Iterable[str], pooling: Pooling | None = None, *, normalize: bool | None = None
    ) -> Vectors:
        """Return the vector of a text, (d_model,), or those of several texts, (texts, d_model).

        ``pooling`` is the mean over the tokens, the state of [CLS], the maximum in each dimension, the sum
        divided by the square root of the length, or the output of the pooler. With ``normalize``, vectors
        have length 1. Both are as in the model's configuration unless they are given.
        """
        if isinstance(texts, str):
            return next(self.stream_vectors([texts], pooling, normalize=normalize))
        vectors = list(self.stream_vectors(texts, pooling, normalize=normalize))
        return np.stack(vectors) if vectors else np.empty((0, self.model.config.d_model), np.float32)

    def stream_vectors(
        self, lines: Iterable[str], pooling: Pooling | None = None, *, normalize: bool | None = None
    ) -> Iterator[Vectors]:
        """Yield the vector of each line, (d_model,), in order; see `embed`."""
        config = self.model.config
        pooling = pooling or config.pooling
        if pooling == "pooler":  # a model without a pooler raises its error before anything is read
            self._pool(torch.zeros(1, 1, config.d_model))
        return self._stream_vectors(lines, pooling, config.normalize if normalize is None else normalize)

    def _stream_vectors(self, lines: Iterable[str], pooling: Pooling, normalize: bool) -> Iterator[Vectors]:
        for chunk in _chunks(lines):
            vectors = np.empty((len(chunk), self.model.config.d_model), np.float32)
            for batch in self._encoded(chunk, self.model.config.embedding_length):
                if pooling == "pooler":
                    pooled = self._pool(batch.states)
                else:
                    is_token = batch.tokens != self.model.vocabulary.pad
                    pooled = pool_tokens(batch.states, is_token, pooling)
                pooled = F.normalize(pooled.float(), dim=1) if normalize else pooled.float()
                vectors[batch.rows] = pooled.cpu().numpy()
            yield from vectors

    @overload
    def classify(self, texts: str) -> dict[str, float]: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Iterable[str]) -> list[dict[str, float]]: ...
    def classify(self, texts: str | Iterable[str]) -> dict[str, float] | list[dict[str, float]]:
        """Return the probability of each class, the most likely first, of one text or of several."""
        if isinstance(texts, str):
            return next(self.stream_classes([texts]))
        return list(self.stream_classes(texts))

    def stream_classes(self, lines: Iterable[str]) -> Iterator[dict[str, float]]:
        """Yield the probability of each class, the most likely first, for each line, in order."""
        if not self.model.config.classes:
            raise ConfigError("the model has no classes", "train a classifier: transduce mlm finetune")
        return self._stream_classes(lines, self.model.config.classes)

    def _stream_classes(self, lines: Iterable[str], classes: Sequence[str]) -> Iterator[dict[str, float]]:
        for chunk in _chunks(lines):
            results: list[dict[str, float]] = [{} for _ in chunk]
            for batch in self._encoded(chunk):
                with torch.inference_mode():
                    probabilities = self.model.classify(batch.states).float().softmax(dim=-1)
                for row, values in zip(batch.rows, probabilities.tolist(), strict=True):
                    pairs = sorted(zip(classes, values, strict=True), key=lambda pair: -pair[1])
                    results[row] = dict(pairs)
            yield from results

    @torch.inference_mode()
    def _pool(self, states: Tensor) -> Tensor:
        return self.model.pool(states.to(self.model.device, self.model.output.weight.dtype))

    def _encoded(self, lines: list[str], longest: int | None = None) -> Iterator[EncodedBatch]:
        """Yield batches of lines of similar length, cut to ``longest`` tokens if the model reads more."""
        special = self.model.vocabulary
        texts = self._encode(lines, longest or self.model.config.max_length)
        for rows in batches_by_length([len(ids) for ids in texts], BATCH_TOKENS):
            tokens = pad_rows([texts[row] for row in rows], special.pad).to(self.model.device)
            with torch.inference_mode():
                states = self.model.encode(tokens, segments_of(tokens, special))
            yield EncodedBatch(rows, tokens, states)

    def _encode(self, lines: Sequence[str], longest: int) -> list[list[int]]:
        special = self.model.vocabulary
        rows, truncated = encode_lines(lines, self.tokenizer.source, special.eos, self.model.config, longest)
        if truncated:
            message = (
                f"{truncated:,} of {len(rows):,} lines were truncated to {longest - 2} tokens, "
                "the model's limit"
            )
            if self.on_warning:
                self.on_warning(message)
            else:
                warnings.warn(message, stacklevel=2)
        return [[special.bos, *ids, special.eos] for ids in rows]

    def _encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text, and the places of its masks."""
        require_utf8(text, "the text")
        special, side = self.model.vocabulary, self.tokenizer.source
        mask = side.mask_id
        ids = [special.bos, *side.encode([text])[0], special.eos]
        places = [place for place, token in enumerate(ids) if token == mask]
        if mask is None or not places:
            raise DataError(f"there is no [MASK] in {text!r}", "write [MASK] in place of a word")
        others = (name for token, name in side.special.items() if token != mask and token in ids[1:-1])
        if written := [name for name in others if name in text]:  # [UNK] may stand for unknown characters
            raise DataError(f"the text contains the special token {written[0]}", "remove it")
        if len(ids) > self.model.config.max_length:
            raise DataError(
                f"the text has {len(ids)} tokens, but the model's limit is {self.model.config.max_length}",
                "shorten the text",
            )
        return ids, places

    def _replaced(self, ids: list[int], place: int, token: int) -> str:
        """Return the text with a token in one place; other masks stay masks."""
        new = [*ids[1:place], token, *ids[place + 1 : -1]]
        return self.tokenizer.source.decode(new, keep_special=True)


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(islice(iterator, LOOKAHEAD)):
        yield chunk
