"""One text a line, or two with a tab between them, as BERT reads them (Devlin et al., 2019, figure 2).

One is ``[CLS] a [SEP]``, all of the first segment; two are ``[CLS] a [SEP] b [SEP]``, and ``b [SEP]`` is the
second segment. The rows here are without the first and the last token of these.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from transduce.config import BERTConfig, Vocabulary
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import DataError


class EncodedLines(NamedTuple):
    """The ids of every line, and how many lines were too long for the model and were cut."""

    rows: list[list[int]]
    cut: int


def encode_lines(lines: Sequence[str], side: SideTokenizer, eos: int, model: BERTConfig) -> EncodedLines:
    """Lines that fit into a model. Special tokens that are written in them are text."""
    texts = [[text for text in line.split("\t") if text.strip()] or [""] for line in lines]
    most = min(2, model.segments)
    for line, found in zip(lines, texts, strict=True):
        if len(found) > most:
            raise DataError(
                f"{len(found)} texts, with tabs between them, are in the line {line!r}",
                f"the model reads {'one' if most == 1 else 'two'} at a time",
            )
    ids = iter(side.plain.encode([text for found in texts for text in found]))
    whole = [[next(ids) for _ in found] for found in texts]
    rows = [_joined(found, eos, model.max_length - 2) for found in whole]
    cut = sum(
        len(row) < sum(map(len, found)) + len(found) - 1 for row, found in zip(rows, whole, strict=True)
    )
    return EncodedLines(rows, cut)


def _joined(texts: list[list[int]], eos: int, most: int) -> list[int]:
    """At most ``most`` ids; of two texts, the longer one is cut until they are equal, and then both."""
    if len(texts) == 1:
        return texts[0][:most]
    first, second = texts
    room = most - 1
    shorter = min(len(first), len(second), room // 2)
    if len(first) > len(second):
        return [*first[: room - shorter], eos, *second[:shorter]]
    return [*first[:shorter], eos, *second[: room - shorter]]


def segments_of(tokens: Tensor, special: Vocabulary) -> Tensor:
    """Texts with [CLS] and [SEP], padded, (batch, length) → 1 for what follows the first [SEP], else 0."""
    ends = tokens == special.eos
    after = ends.cumsum(dim=1) > ends.long()
    return (after & (tokens != special.pad)).long()
