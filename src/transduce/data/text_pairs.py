"""One text per line, or two separated by a tab, as BERT reads them (Devlin et al., 2019, figure 2).

One text is ``[CLS] a [SEP]``, all in the first segment; two are ``[CLS] a [SEP] b [SEP]``, with ``b [SEP]``
in the second segment. The rows in this module lack the first and the last of these tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from transduce.config import BERTConfig, Vocabulary
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import DataError


class EncodedLines(NamedTuple):
    """The ids of every line, and the number of lines that were cut to the model's length."""

    rows: list[list[int]]
    cut: int


def encode_lines(
    lines: Sequence[str], side: SideTokenizer, eos: int, model: BERTConfig, longest: int | None = None
) -> EncodedLines:
    """Encode lines and cut them to the length that the model reads; special tokens in them are text.

    ``longest`` is a smaller length, in tokens, [CLS] and [SEP] included.
    """
    texts = [[text for text in line.split("\t") if text.strip()] or [""] for line in lines]
    limit = min(2, model.segments)
    for line, parts in zip(lines, texts, strict=True):
        if len(parts) > limit:
            raise DataError(
                f"the line {line!r} has {len(parts)} texts, separated by tabs",
                f"give {'one text' if limit == 1 else 'one or two texts'} per line",
            )
    ids = iter(side.plain.encode([text for parts in texts for text in parts]))
    encoded = [[next(ids) for _ in parts] for parts in texts]
    room = (longest or model.max_length) - 2
    rows = [_joined(parts, eos, room) for parts in encoded]
    cut = sum(
        len(row) < sum(map(len, parts)) + len(parts) - 1 for row, parts in zip(rows, encoded, strict=True)
    )
    return EncodedLines(rows, cut)


def _joined(texts: list[list[int]], eos: int, limit: int) -> list[int]:
    """Join one or two texts in at most ``limit`` ids; the longer is cut until both are equal, then both."""
    if len(texts) == 1:
        return texts[0][:limit]
    first, second = texts
    room = limit - 1
    shorter = min(len(first), len(second), room // 2)
    if len(first) > len(second):
        return [*first[: room - shorter], eos, *second[:shorter]]
    return [*first[:shorter], eos, *second[: room - shorter]]


def segments_of(tokens: Tensor, special: Vocabulary) -> Tensor:
    """Return 1 for tokens after the first [SEP], else 0, for padded texts: (batch, length) → the same."""
    ends = tokens == special.eos
    after = ends.cumsum(dim=1) > ends.long()
    return (after & (tokens != special.pad)).long()
