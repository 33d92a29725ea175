"""Masked tokens (Devlin et al., 2019): which tokens a model has to predict, and what replaces them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.generic]
Numbers = npt.NDArray[np.int64]

CHOSEN = 0.15  # share of the tokens to predict
MASKED, REPLACED = 0.8, 0.1  # of these, the shares that become [MASK] and a random token; the rest stays
IGNORED = -1  # the label of tokens that are not predicted


class Masked(NamedTuple):
    """What the model reads, and what it has to predict."""

    tokens: Numbers
    labels: Numbers  # the original token where one was chosen, `IGNORED` elsewhere


def mask_tokens(ids: Row, mask: int, ordinary: Numbers, generator: np.random.Generator) -> Masked:
    """Choose 15% of a text's ``ordinary`` tokens, at least one: 80% become ``mask``, 10% a random token.

    In a text without ordinary tokens (all are [UNK]), any token may be chosen: without a label, the mean loss
    would be undefined.
    """
    tokens = ids.astype(np.int64)
    labels = np.full_like(tokens, IGNORED)
    candidates = np.flatnonzero(np.isin(tokens, ordinary))
    candidates = candidates if len(candidates) else np.arange(len(tokens))
    count = max(1, round(CHOSEN * len(candidates)))
    places = generator.permutation(candidates)[:count]
    labels[places] = tokens[places]
    uniform = generator.random(count)
    tokens[places[uniform < MASKED]] = mask
    replaced = places[(uniform >= MASKED) & (uniform < MASKED + REPLACED)]
    tokens[replaced] = generator.choice(ordinary, len(replaced))
    return Masked(tokens, labels)
