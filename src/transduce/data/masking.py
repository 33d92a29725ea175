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
    """Choose 15% of a text's ``ordinary`` tokens, at least one: 80% become ``mask``, 10% any of them.

    A text without any, all [UNK], has its tokens chosen among those: where nothing is to be guessed, there is
    no loss to take the mean of.
    """
    tokens = ids.astype(np.int64)
    labels = np.full_like(tokens, IGNORED)
    guessable = np.flatnonzero(np.isin(tokens, ordinary))
    guessable = guessable if len(guessable) else np.arange(len(tokens))
    count = max(1, round(CHOSEN * len(guessable)))
    places = generator.permutation(guessable)[:count]
    labels[places] = tokens[places]
    fate = generator.random(count)
    tokens[places[fate < MASKED]] = mask
    exchanged = places[(fate >= MASKED) & (fate < MASKED + EXCHANGED)]
    tokens[exchanged] = generator.choice(ordinary, len(exchanged))
    return Masked(tokens, labels)
