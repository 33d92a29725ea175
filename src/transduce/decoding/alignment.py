"""Alignments: the source tokens to which the tokens of a target attend."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.search import pad_ids
from transduce.models.protocol import SequenceModel

ATTENTION_CELLS = 2**20  # computed at a time: targets × their length × the length of their sources


@torch.inference_mode()
def mean_attention(
    model: SequenceModel[Any, Any], source: Tensor, targets: Sequence[list[int]], prefix: Sequence[int] = ()
) -> list[Tensor] | None:
    """Return the attention of each target to its source, averaged over all heads and layers.

    source (targets, source) is padded; the results are (target, source). The decoder reads the ``prefix``
    before every target. ``None`` if the model has no attention to its source.
    """
    first, before = [model.vocabulary.bos, *prefix], len(prefix)
    # The last token is never read: the model may have no position for it.
    read = pad_ids([[*first, *target[:-1]] for target in targets], model)
    layers = model.attention(source, read).encoder_decoder
    if not layers:
        return None
    mean = torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)
    return [weights[before : before + len(target)] for weights, target in zip(mean, targets, strict=True)]


def align(
    model: SequenceModel[Any, Any],
    source: Tensor,
    found: list[list[Hypothesis]],
    prefix: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source with their alignments; unchanged for a model without attention.

    source (sentences, source) is padded. The decoder reads the ``prefix`` before every target.
    """
    rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
    flat = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    aligned = _align(model, source, rows, flat, prefix)
    return [[next(aligned) for _ in hypotheses] for hypotheses in found]


def _align(
    model: SequenceModel[Any, Any],
    source: Tensor,
    rows: list[int],
    hypotheses: list[Hypothesis],
    prefix: Sequence[int],
) -> Iterator[Hypothesis]:
    longest = max([source.size(1), *(len(hypothesis.tokens) for hypothesis in hypotheses)])
    size = max(1, ATTENTION_CELLS // longest**2)
    for begin in range(0, len(rows), size):
        part = hypotheses[begin : begin + size]
        attention = mean_attention(
            model, source[rows[begin : begin + size]], [hypothesis.tokens for hypothesis in part], prefix
        )
        for index, hypothesis in enumerate(part):
            strongest = None if attention is None else attention[index].argmax(dim=-1).tolist()
            yield replace(hypothesis, alignment=strongest)
