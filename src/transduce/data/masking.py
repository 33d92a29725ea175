"""Masked tokens (Devlin et al., 2019): which ones are to be guessed, and what stands in their place."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.generic]
Numbers = npt.NDArray[np.int64]

CHOSEN = 0.15  # of the tokens
MASKED, EXCHANGED = 0.8, 0.1  # of the chosen; the rest stays, and must be guessed all the same
IGNORED = -1  # a label where there is nothing to guess


class Masked(NamedTuple):
    """What is read, and what is to be guessed."""

    tokens: Numbers
    labels: Numbers  # the true token where it was chosen, `IGNORED` elsewhere


def mask_tokens(ids: Row, mask: int, ordinary: Numbers, generator: np.random.Generator) -> Masked:
    """Choose 15% of a text, and at least one token: 80% become ``mask``, 10% a random ``ordinary`` one."""
    tokens = ids.astype(np.int64)
    labels = np.full_like(tokens, IGNORED)
    count = max(1, round(CHOSEN * len(tokens)))
    places = generator.permutation(len(tokens))[:count]
    labels[places] = tokens[places]
    fate = generator.random(count)
    tokens[places[fate < MASKED]] = mask
    exchanged = places[(fate >= MASKED) & (fate < MASKED + EXCHANGED)]
    tokens[exchanged] = generator.choice(ordinary, len(exchanged))
    return Masked(tokens, labels)
