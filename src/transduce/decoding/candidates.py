"""Candidates: the best next tokens of all hypotheses of a sentence."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.decoding.hypotheses import Beams, Candidates
from transduce.errors import TransduceError

BLOCK = 64  # tokens, approximately

# Takes the log-probabilities of the next token, (sentences, width, vocabulary), in which forbidden tokens are
# −∞, and the number of candidates to return for each sentence.
Chooser = Callable[[Tensor, Beams, int], Candidates]


def choose_best(scores: Tensor, beams: Beams, count: int) -> Candidates:
    """Return the most likely candidates of all hypotheses of a sentence."""
    return Candidates.of(*best_of(scores, _sums(scores, beams), count))


def _sums(like: Tensor, beams: Beams) -> Tensor:
    return torch.from_numpy(beams.sums).to(like.device)


def best_of(scores: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the highest of scores (sentences, width, vocabulary) + offsets (sentences, width).

    The results are sums, hypotheses and tokens, (sentences, count) each. On a CPU this is several times
    faster than ``topk`` over everything: the best are in the blocks with the highest maxima, and maxima are
    far cheaper than sorting.
    """
    count, vocabulary = min(count, scores[0].numel()), scores.size(2)
    block = _block_size(vocabulary)
    if missing := -vocabulary % block:
        scores = F.pad(scores, (0, missing), value=-torch.inf)
    blocks = scores.view(*scores.shape[:2], -1, block)
    per_hypothesis = blocks.size(2)
    maxima = (blocks.amax(dim=-1) + offsets[:, :, None]).flatten(1)
    place = maxima.topk(min(count, maxima.size(1)), dim=1).indices  # (sentences, count)
    parent, number = place // per_hypothesis, place % per_hypothesis
    rows = torch.arange(len(scores), device=scores.device)[:, None]
    chosen = blocks[rows, parent, number] + offsets[rows, parent][:, :, None]  # (sentences, count, block)
    sums, best = chosen.flatten(1).topk(count, dim=1)
    # The padding of the last block is −∞, but must not become a token outside the vocabulary.
    tokens = (number.gather(1, best // block) * block + best % block).clamp(max=vocabulary - 1)
    return sums, parent.gather(1, best // block), tokens


@cache
def _block_size(vocabulary: int) -> int:
    """Return a divisor of the vocabulary size near `BLOCK`, if there is one: then nothing is padded."""
    divisors = [size for size in range(BLOCK // 2, 2 * BLOCK + 1) if vocabulary % size == 0]
    return min(divisors, key=lambda size: abs(size - BLOCK), default=BLOCK)


def nan_logits() -> TransduceError:
    """Return the error for logits that are NaN."""
    return TransduceError(
        "the model's logits are NaN: its weights are damaged, or too large for this precision",
        "try --precision float32, or an earlier checkpoint",
    )


class ChooseDiverse:
    """A `Chooser` for diverse beam search, whose groups avoid each other's tokens (Vijayakumar et al., 2016).

    Each sentence is repeated for each of its ``groups``: row ``groups`` × sentence + group. A token costs a
    group ``strength`` for each time that an earlier group has just chosen it.
    """

    def __init__(self, groups: int, strength: float) -> None:
        self.groups, self.strength = groups, strength

    def __call__(self, scores: Tensor, beams: Beams, count: int) -> Candidates:
        """Choose the candidates of one group after the other."""
        offsets = _sums(scores, beams)
        names = torch.tensor(beams.sentences, device=scores.device)
        sentence, group = names // self.groups, names % self.groups
        uses = scores.new_zeros(int(sentence.max()) + 1, scores.size(2))  # of each token by earlier groups
        parts: dict[int, tuple[Tensor, ...]] = {}
        for number in range(self.groups):
            rows = (group == number).nonzero().squeeze(1)
            if not len(rows):
                continue
            penalized = scores[rows] - self.strength * uses[sentence[rows]][:, None]
            _, parents, tokens = best_of(penalized, offsets[rows], count)
            own = scores[rows].flatten(1).gather(1, parents * scores.size(2) + tokens)
            sums = own + offsets[rows].gather(1, parents)
            kept = tokens[:, : count // 2]  # about as many as will be kept
            uses[sentence[rows]] = uses[sentence[rows]].scatter_add(
                1, kept, torch.ones_like(kept, dtype=uses.dtype)
            )
            parts.update(zip(rows.tolist(), zip(sums, parents, tokens, strict=True), strict=True))
        in_order = zip(*(parts[row] for row in range(len(names))), strict=True)
        return Candidates.of(*(torch.stack(part) for part in in_order))
