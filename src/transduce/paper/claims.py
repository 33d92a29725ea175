"""All claims, in the order of the paper; Table 3 and the size of its vocabulary come last."""

from collections.abc import Iterator

import torch

from transduce.paper import causality, cost, dot_products, embeddings, optimisation, parameters, positions
from transduce.paper.claim import Claim

_GROUPS = (causality, dot_products, embeddings, positions, cost, optimisation, parameters)


def all_claims() -> Iterator[Claim]:
    """Measure one group of claims after the other, with the same random numbers on every run."""
    for group in _GROUPS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            measured = list(group.claims())
        yield from measured
