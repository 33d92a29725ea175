"""What must not be said, or must: rules over the scores of the next token."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.decoding.hypotheses import Beams

# Sets what it forbids to −∞ in scores (sentences, width, vocabulary), in place.
Rule: TypeAlias = Callable[[Tensor, Beams], None]


def silent_tokens(vocabulary: Vocabulary) -> list[int]:
    """Padding and ``bos`` are no words."""
    return sorted({vocabulary.pad, vocabulary.bos} - {vocabulary.eos})


def unspeakable(vocabulary: Vocabulary) -> Rule:
    """None of the `silent_tokens`."""
    never = silent_tokens(vocabulary)

    def rule(scores: Tensor, beams: Beams) -> None:
        for token in never:
            scores[:, :, token] = -torch.inf

    return rule


def min_length(tokens: int, eos: int) -> Rule:
    """At least so many tokens before the end."""

    def rule(scores: Tensor, beams: Beams) -> None:
        if beams.length < tokens:
            scores[:, :, eos] = -torch.inf

    return rule


def no_repeated_ngram(size: int) -> Rule:
    """No ``size`` tokens in a row twice in one target."""

    def rule(scores: Tensor, beams: Beams) -> None:
        if beams.length < size:
            return
        said = torch.from_numpy(beams.tokens).to(scores.device)
        windows = said.unfold(2, size, 1)  # (sentences, width, places, size)
        now = said[:, :, beams.length - size + 1 :]  # the last size − 1 tokens
        same = (windows[..., :-1] == now[:, :, None]).all(dim=-1)
        row, beam, place = same.nonzero(as_tuple=True)
        scores[row, beam, windows[row, beam, place, -1]] = -torch.inf

    return rule


def prefix(targets: Sequence[Sequence[int]], others: Sequence[Rule] = ()) -> Rule:
    """Each sentence begins with these tokens, whatever the model and the ``others`` think of them."""

    def rule(scores: Tensor, beams: Beams) -> None:
        begun = [
            (row, token, scores[row, :, token].clone())
            for row, sentence in enumerate(beams.sentences)
            for token in targets[sentence][beams.length : beams.length + 1]
        ]
        for other in others:
            other(scores, beams)
        for row, token, only in begun:
            scores[row] = -torch.inf
            scores[row, :, token] = only

    return rule
