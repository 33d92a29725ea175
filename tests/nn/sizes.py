"""How large the tensors of a computation are."""

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Largest(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                # Of memory, not of views: an expanded tensor is no larger than what it shows.
                held = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.elements = max(self.elements, held)
        return result


def largest_tensor(run: Callable[[], object]) -> int:
    """Elements of the largest tensor that ``run`` makes."""
    with _Largest() as seen:
        run()
    return seen.elements
