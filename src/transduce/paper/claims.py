"""All claims, in the paper's order, Table 3 and the vocabulary it asks for last."""

from collections.abc import Iterator

import torch

from transduce.paper import causality, cost, dot_products, embeddings, optimisation, parameters, positions
from transduce.paper.claim import Claim

_GROUPS = (causality, dot_products, embeddings, positions, cost, optimisation, parameters)


def all_claims() -> Iterator[Claim]:
    """Each group is measured when its turn comes, from the same random numbers every time."""
    for group in _GROUPS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            measured = list(group.claims())
        yield from measured
