"""What all ONNX exports share: networks without choices that depend on sizes, and how torch writes them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transduce.errors import DependencyError
from transduce.interop.onnx_rounding import PACKAGES, quiet
from transduce.nn.multi_head_attention import MultiHeadAttention

_LARGEST = 1_900_000_000  # bytes of a single file; weights of larger models are in a second one


class Interface(NamedTuple):
    """Examples of a network's inputs, which of their dimensions are free, and the names of its tensors."""

    examples: tuple[Any, ...]
    dimensions: tuple[Any, ...]
    inputs: Sequence[str]
    outputs: Sequence[str]


class Table(nn.Module):
    """A table of fixed length with one row per position, in place of positions that know no limit."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows: Tensor
        self.register_buffer("rows", rows.detach())

    def forward(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Add rows to x, (batch, length, d_model), from ``start`` on, or at positions (batch, length)."""
        rows = self.at(start) if isinstance(start, Tensor) else self.get(start, start + x.shape[1], x)
        return x + rows

    def get(self, start: int, end: int, like: Tensor) -> Tensor:
        """Return rows ``start`` to ``end``, as tables inside of positions do."""
        return self.rows.index_select(0, torch.arange(start, end, device=like.device))

    def at(self, positions: Tensor) -> Tensor:
        """Return the rows at these positions: (batch, length) → (batch, length, …)."""
        return self.rows[positions]


def attend(
    attention: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """Attend as the equation says; the mask broadcasts to (batch, heads, query, key)."""
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(attention.d_k))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return attention.join_heads(scores.softmax(dim=-1) @ value)


def layer_names(prefix: str, layers: int, kinds: Sequence[str] = ("key", "value")) -> list[str]:
    """Return the names of the tensors of every layer, such as ``past_key_0``."""
    return [f"{prefix}{kind}_{number}" for number in range(layers) for kind in kinds]


def require_packages() -> None:
    """Raise an error if the packages are missing with which torch writes ONNX."""
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise DependencyError(f"the export needs {error.name}, which is not installed", PACKAGES) from error
    del onnx, onnxscript  # torch uses them


def write_graph(graph: nn.Module, path: Path, interface: Interface) -> None:
    """Write a network as an ONNX file."""
    size = sum(parameter.numel() * 4 for parameter in graph.parameters())
    with quiet(), torch.no_grad():
        torch.onnx.export(
            graph.eval(),
            interface.examples,
            str(path),
            input_names=list(interface.inputs),
            output_names=list(interface.outputs),
            dynamic_shapes=interface.dimensions,
            dynamo=True,
            verbose=False,
            external_data=size > _LARGEST,
        )
