"""Rules: functions that forbid next tokens by setting their scores to −∞."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.decoding.hypotheses import Beams

# Changes scores (sentences, width, vocabulary) in place.
Rule: TypeAlias = Callable[[Tensor, Beams], None]


def forbidden_tokens(vocabulary: Vocabulary) -> list[int]:
    """Return the tokens that no target contains: padding and ``bos``."""
    return sorted({vocabulary.pad, vocabulary.bos} - {vocabulary.eos})


def forbid_special_tokens(vocabulary: Vocabulary) -> Rule:
    """Forbid the `forbidden_tokens`."""
    tokens = forbidden_tokens(vocabulary)

    def rule(scores: Tensor, beams: Beams) -> None:
        for token in tokens:
            scores[:, :, token] = -torch.inf

    return rule


def min_length(tokens: int, eos: int) -> Rule:
    """Forbid targets with fewer tokens than this, not counting ``eos``."""

    def rule(scores: Tensor, beams: Beams) -> None:
        if beams.length < tokens:
            scores[:, :, eos] = -torch.inf

    return rule


def no_repeated_ngram(size: int) -> Rule:
    """Forbid repeated n-grams of ``size`` tokens within a target."""

    def rule(scores: Tensor, beams: Beams) -> None:
        if beams.length < size:
            return
        tokens = torch.from_numpy(beams.tokens).to(scores.device)
        windows = tokens.unfold(2, size, 1)  # (sentences, width, places, size)
        last = tokens[:, :, beams.length - size + 1 :]  # the last size − 1 tokens
        same = (windows[..., :-1] == last[:, :, None]).all(dim=-1)
        row, beam, place = same.nonzero(as_tuple=True)
        scores[row, beam, windows[row, beam, place, -1]] = -torch.inf

    return rule


def prefix(targets: Sequence[Sequence[int]], others: Sequence[Rule] = ()) -> Rule:
    """Force each sentence to begin with these tokens; the ``others`` apply after that."""

    def rule(scores: Tensor, beams: Beams) -> None:
        forced = [
            (row, token, scores[row, :, token].clone())
            for row, sentence in enumerate(beams.sentences)
            for token in targets[sentence][beams.length : beams.length + 1]
        ]
        for other in others:
            other(scores, beams)
        for row, token, score in forced:
            scores[row] = -torch.inf
            scores[row, :, token] = score

    return rule
