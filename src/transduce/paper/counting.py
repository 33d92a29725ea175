"""Count multiplications, chains of dependent operations, and layers between two positions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

_PRODUCTS = ("MmBackward", "BmmBackward", "AddmmBackward", "ConvolutionBackward")


def count_multiplications(run: Callable[[], object]) -> int:
    """Count the multiplications of all matrix products and convolutions in a run."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return int(counter.get_total_flops()) // 2


def longest_chain(result: Tensor) -> int:
    """Return the longest chain of dependent matrix products in the autograd graph of a result."""
    depth: dict[object, int] = {}
    pending = [result.grad_fn]
    while pending:
        node = pending[-1]
        parents = [parent for parent, _ in getattr(node, "next_functions", ()) if parent is not None]
        unknown = [parent for parent in parents if parent not in depth]
        if unknown:
            pending.extend(unknown)
            continue
        pending.pop()
        own = int(type(node).__name__.startswith(_PRODUCTS))
        depth[node] = own + max((depth[parent] for parent in parents), default=0)
    return depth[result.grad_fn]


def layers_to_connect(layer_at: Callable[[int], Callable[[Tensor], Tensor]], n: int, d: int = 2) -> int:
    """Return the number of layers after which the last position has a gradient to the first."""
    x = torch.randn(n, d, dtype=torch.float64, requires_grad=True)
    y, depth = x, 0
    while True:
        y = layer_at(depth)(y)
        depth += 1
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if gradient[0].abs().sum() > 0:
            return depth
