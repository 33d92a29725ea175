"""Which tokens could come next: the best few of all hypotheses of a sentence."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.decoding.hypotheses import Beams, Candidates
from transduce.errors import TransduceError

BLOCK = 64  # tokens, or so


# From the log-probabilities of the next token, (sentences, width, vocabulary), in which what must not be said
# is −∞; and how many are wanted.
Chooser = Callable[[Tensor, Beams, int], Candidates]


def choose_best(scores: Tensor, beams: Beams, count: int) -> Candidates:
    """The most likely ones of all hypotheses of a sentence."""
    return Candidates.of(*best_of(scores, _sums(scores, beams), count))


def _sums(like: Tensor, beams: Beams) -> Tensor:
    return torch.from_numpy(beams.sums).to(like.device)


def best_of(scores: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The highest of scores + offsets (sentences, width): ``topk`` over all, several times faster on a CPU.

    The best few are in the blocks with the best maxima, and maxima are far cheaper than an order. Gives sums,
    hypotheses and tokens: (sentences, count) each.
    """
    count, vocabulary = min(count, scores[0].numel()), scores.size(2)
    block = _block_size(vocabulary)
    if missing := -vocabulary % block:
        scores = F.pad(scores, (0, missing), value=-torch.inf)
    blocks = scores.view(*scores.shape[:2], -1, block)
    in_a_row = blocks.size(2)
    highest = (blocks.amax(dim=-1) + offsets[:, :, None]).flatten(1)
    place = highest.topk(min(count, highest.size(1)), dim=1).indices  # (sentences, count)
    parent, which = place // in_a_row, place % in_a_row
    rows = torch.arange(len(scores), device=scores.device)[:, None]
    near = blocks[rows, parent, which] + offsets[rows, parent][:, :, None]  # (sentences, count, block)
    sums, found = near.flatten(1).topk(count, dim=1)
    # What stands behind the vocabulary's end has no chance, but must not be a token of its own.
    tokens = (which.gather(1, found // block) * block + found % block).clamp(max=vocabulary - 1)
    return sums, parent.gather(1, found // block), tokens


@cache
def _block_size(vocabulary: int) -> int:
    """A size near `BLOCK` into which the vocabulary divides, if any does: the scores need no copy then."""
    fitting = [size for size in range(BLOCK // 2, 2 * BLOCK + 1) if vocabulary % size == 0]
    return min(fitting, key=lambda size: abs(size - BLOCK), default=BLOCK)


def no_numbers() -> TransduceError:
    """What to say of a model whose logits are none."""
    return TransduceError(
        "the model finds no numbers for the next token",
        "its weights are damaged, or too large for this precision",
    )


class ChooseDiverse:
    """Groups that keep away from each other (diverse beam search, Vijayakumar et al., 2016).

    The sentences of the beams are groups, ``groups`` for each real sentence: number ``groups`` × sentence +
    group. A token costs a group ``strength`` for each time an earlier group has just chosen it.
    """

    def __init__(self, groups: int, strength: float) -> None:
        self.groups, self.strength = groups, strength

    def __call__(self, scores: Tensor, beams: Beams, count: int) -> Candidates:
        """See `Chooser`."""
        offsets = _sums(scores, beams)
        names = torch.tensor(beams.sentences, device=scores.device)
        sentence, group = names // self.groups, names % self.groups
        said = scores.new_zeros(int(sentence.max()) + 1, scores.size(2))
        parts: dict[int, tuple[Tensor, ...]] = {}
        for number in range(self.groups):
            rows = (group == number).nonzero().squeeze(1)
            if not len(rows):
                continue
            dear = scores[rows] - self.strength * said[sentence[rows]][:, None]
            _, parents, tokens = best_of(dear, offsets[rows], count)
            real = scores[rows].flatten(1).gather(1, parents * scores.size(2) + tokens)
            sums = real + offsets[rows].gather(1, parents)
            kept = tokens[:, : count // 2]  # as many as will go on, or nearly so
            said[sentence[rows]] = said[sentence[rows]].scatter_add(
                1, kept, torch.ones_like(kept, dtype=said.dtype)
            )
            parts.update(zip(rows.tolist(), zip(sums, parents, tokens, strict=True), strict=True))
        in_order = zip(*(parts[row] for row in range(len(names))), strict=True)
        return Candidates.of(*(torch.stack(part) for part in in_order))
