"""Alignments: the source token that each token of a target comes from, as attention shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.search import pad_ids
from transduce.models.protocol import SequenceModel
from transduce.nn.factor_embeddings import tokens_of

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


@torch.inference_mode()
def alignment_scores(
    model: SequenceModel[Any, Any],
    source: Tensor,
    targets: Sequence[list[int]],
    prefix: Sequence[int] = (),
    frame: tuple[int, int] = (0, 1),
) -> list[Tensor] | None:
    """Return how well each source token fits each target token: (target, source), one per target.

    While a decoder predicts a token, its upper layers attend to the token's source; its lower layers do so
    one step later, when they read it. So the weights of the upper half of the layers when a token is
    predicted are added to those of the lower half when it is read. The tokens that ``frame`` every source,
    such as ``eos``, get none: decoders attend to them when there is nothing to look for. (Names and numbers
    of the FLORES texts then find themselves in 97% and 100% of cases with two models; the mean of all layers
    found 36% and 99%.)
    """
    first, before = [model.vocabulary.bos, *prefix], len(prefix)
    # The model may have no position for the last token.
    read = pad_ids([[*first, *target][: model.max_length] for target in targets], model)
    layers = [layer.mean(dim=1) for layer in model.attention(source, read).encoder_decoder]
    if not layers:
        return None
    half = len(layers) // 2
    predicting = torch.stack(layers[half:]).mean(dim=0)
    reading = torch.stack(layers[:half]).mean(dim=0) if half else torch.zeros_like(predicting)
    is_token = tokens_of(source) != model.vocabulary.pad
    scores = []
    for row, target in enumerate(targets):
        fit = predicting[row, before : before + len(target)].clone()
        later = reading[row, before + 1 : before + 1 + len(target)]
        fit[: len(later)] += later
        length = int(is_token[row].nonzero().max()) + 1
        begin, end = frame[0], length - frame[1]
        if begin < end:
            fit[:, :begin] = fit[:, end:] = 0
        scores.append(fit)
    return scores


def align(
    model: SequenceModel[Any, Any],
    source: Tensor,
    found: list[list[Hypothesis]],
    prefix: Sequence[int] = (),
    frame: tuple[int, int] = (0, 1),
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source with their alignments; unchanged for a model without attention.

    source (sentences, source) is padded. The decoder reads the ``prefix`` before every target; ``frame`` are
    the numbers of tokens before and after the text of every source.
    """
    rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
    flat = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    aligned = _align(model, source, rows, flat, prefix, frame)
    return [[next(aligned) for _ in hypotheses] for hypotheses in found]


def _align(
    model: SequenceModel[Any, Any],
    source: Tensor,
    rows: list[int],
    hypotheses: list[Hypothesis],
    prefix: Sequence[int],
    frame: tuple[int, int],
) -> Iterator[Hypothesis]:
    longest = max([source.size(1), *(len(hypothesis.tokens) for hypothesis in hypotheses)])
    size = max(1, ATTENTION_CELLS // longest**2)
    for begin in range(0, len(rows), size):
        part = hypotheses[begin : begin + size]
        targets = [hypothesis.tokens for hypothesis in part]
        scores = alignment_scores(model, source[rows[begin : begin + size]], targets, prefix, frame)
        for index, hypothesis in enumerate(part):
            best = None if scores is None else scores[index].argmax(dim=-1).tolist()
            yield replace(hypothesis, alignment=best)
