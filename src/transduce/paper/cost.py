"""Table 1, counted: operations, sequential operations and path lengths; and later kinds of attention."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.attention import scaled_dot_product_attention
from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.window_attention import Window, restricted_attention, window_attention
from transduce.paper.claim import Claim
from transduce.paper.counting import count_multiplications, layers_to_connect, longest_chain

KERNEL, RADIUS = 3, 4
GLOBAL_TOKENS, RANK, BUCKETS, ROUNDS, CHUNK = 2, 16, 4, 2, 8


def self_attention(x: Tensor) -> Tensor:
    """Attend from every position to every position: (n, d) → (n, d), without projections, as in Table 1."""
    return scaled_dot_product_attention(x, x, x).values


def recurrent(x: Tensor, trained: bool = True) -> Tensor:
    """Compute one position after the other: (n, d) → (n, d)."""
    width = x.size(-1)
    cell = nn.RNNCell(width, width, dtype=x.dtype).requires_grad_(trained)
    state, states = x.new_zeros(1, width), []
    for position in torch.split(x, 1):
        state = cell(position, state)
        states.append(state)
    return torch.cat(states)


def convolutional(x: Tensor, kernel: int = KERNEL, dilation: int = 1) -> Tensor:
    """Combine each position with the kernel − 1 before it, ``dilation`` apart: (n, d) → (n, d)."""
    width = x.size(-1)
    layer = nn.Conv1d(width, width, kernel, dilation=dilation, dtype=x.dtype)
    padded = F.pad(x.T[None], (dilation * (kernel - 1), 0))
    convolved: Tensor = layer(padded)[0].T
    return convolved


def restricted(x: Tensor, radius: int = RADIUS) -> Tensor:
    """Attend to a neighborhood of r = 2·radius + 1 positions: (n, d) → (n, d)."""
    return restricted_attention(x, x, x, radius).values


def window(x: Tensor) -> Tensor:
    """Attend to a neighborhood and the first positions, in blocks: (n, d) → (n, d)."""
    x = x[None, None]
    return window_attention(x, x, x, Window(RADIUS, GLOBAL_TOKENS))[0, 0]


def low_rank(x: Tensor) -> Tensor:
    """Attend to RANK mixtures of all positions: (n, d) → (n, d)."""
    layer = LowRankSelfAttention(x.size(-1), 1, rank=RANK, max_length=len(x))
    x = x[None, None]
    return scaled_dot_product_attention(x, *layer.mix_positions(x, x)).values[0, 0]


def hashed(x: Tensor) -> Tensor:
    """Attend to the chunk of the same bucket and the one before, with hashing: (n, d) → (n, d)."""
    layer = HashedSelfAttention(x.size(-1), 1, buckets=BUCKETS, rounds=ROUNDS, chunk=CHUNK)
    x = x[None, None]
    return layer.attend_within_chunks(x, x, None, None)[0, 0]


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1: its claims, and a layer to run."""

    name: str
    run: Callable[[Tensor], Tensor]
    complexity: str
    exponents: tuple[float, float]  # of n and of d
    sequential: str
    sequential_exponent: float  # of n


TABLE_1 = (
    LayerType("self-attention", self_attention, "O(n²·d)", (2, 1), "O(1)", 0),
    LayerType("recurrence", recurrent, "O(n·d²)", (1, 2), "O(n)", 1),
    LayerType("convolution", convolutional, "O(k·n·d²)", (1, 2), "O(1)", 0),
    LayerType("restricted self-attention", restricted, "O(r·n·d)", (1, 1), "O(1)", 0),
)


# Kinds of attention from later papers, for the long sequences that section 4 leaves to future work.
LATER = (
    LayerType("window with global tokens (Longformer)", window, "O((r + g)·n·d)", (1, 1), "O(1)", 0),
    LayerType("low-rank self-attention (Linformer)", low_rank, "O(rank·n·d)", (1, 1), "O(1)", 0),
    LayerType("hashed self-attention (Reformer)", hashed, "O(c·n·d)", (1, 1), "O(1)", 0),
)


def cost(run: Callable[[Tensor], Tensor], n: int, d: int) -> int:
    """Count the multiplications of one layer over n positions of width d."""
    return count_multiplications(lambda: run(torch.randn(n, d)))


def claims() -> Iterator[Claim]:
    """Check growth, the crossover, the factors k and r, sequential operations and path lengths."""
    for layer in TABLE_1:
        yield _growth(layer)
    yield _kernel_and_neighborhood()
    yield _crossover()
    for layer in LATER:  # so long that partly filled buckets do not matter
        yield _growth(layer, n=2048, section="later")
    for layer in TABLE_1:
        yield _sequential_operations(layer)
    yield from _path_lengths()


def _exponent(small: float, large: float) -> float:
    """Return the exponent of a power law from its values at x and 2x."""
    return math.log2(large / small)


def _growth(layer: LayerType, n: int = 128, d: int = 64, section: str = "Table 1") -> Claim:
    base = cost(layer.run, n, d)
    in_n = _exponent(base, cost(layer.run, 2 * n, d))
    in_d = _exponent(base, cost(layer.run, n, 2 * d))
    error = max(abs(in_n - layer.exponents[0]), abs(in_d - layer.exponents[1]))
    return Claim(
        section,
        f"cost of {layer.name}",
        layer.complexity,
        f"n^{in_n:.2f} · d^{in_d:.2f}",
        error < 0.02,
    )


def _kernel_and_neighborhood(n: int = 128, d: int = 64) -> Claim:
    in_k = cost(lambda x: convolutional(x, 6), n, d) / cost(lambda x: convolutional(x, 3), n, d)
    in_r = cost(lambda x: restricted(x, 7), n, d) / cost(lambda x: restricted(x, 2), n, d)
    return Claim(
        "Table 1",
        "cost is proportional to k and r (k: 3 → 6, r: 5 → 15)",
        "× 2 and × 3",
        f"× {in_k:.2f} and × {in_r:.2f}",
        abs(in_k - 2) < 0.02 and abs(in_r - 3) < 0.02,
    )


def crossover(d: int) -> int:
    """Return the shortest length at which self-attention costs at least as much as recurrence."""
    n = 1
    while cost(self_attention, n, d) < cost(recurrent, n, d):
        n += 1
    return n


def _crossover() -> Claim:
    crossovers = {d: crossover(d) for d in (16, 32, 64)}
    return Claim(
        "4",
        "self-attention is cheaper than recurrence for n < d",
        "same at n = d",
        ", ".join(f"n = {n} at d = {d}" for d, n in crossovers.items()),
        all(n == d for d, n in crossovers.items()),
    )


def _sequential_operations(layer: LayerType, n: int = 32, d: int = 8) -> Claim:
    chains = [longest_chain(layer.run(torch.randn(size, d, requires_grad=True))) for size in (n, 2 * n)]
    exponent = _exponent(*chains)
    return Claim(
        "Table 1",
        f"sequential operations of {layer.name}",
        layer.sequential,
        f"{chains[0]} at n = {n}, {chains[1]} at n = {2 * n}",
        abs(exponent - layer.sequential_exponent) < 0.1,
    )


def recurrent_path(n: int, d: int = 4) -> int:
    """Return the number of matrix products between the first input and the last state."""
    first, rest = torch.randn(1, d, requires_grad=True), torch.randn(n - 1, d)
    return longest_chain(recurrent(torch.cat((first, rest)), trained=False)[-1])


def _path_lengths() -> Iterator[Claim]:
    connected = [layers_to_connect(lambda _: self_attention, n) for n in (16, 128)]
    yield Claim(
        "Table 1",
        "maximum path length of self-attention",
        "O(1)",
        f"{connected[0]} at n = 16, {connected[1]} at n = 128",
        connected == [1, 1],
    )
    steps = [recurrent_path(n) for n in (16, 128)]
    yield Claim(
        "Table 1",
        "maximum path length of recurrence",
        "O(n)",
        f"{steps[0]} at n = 16, {steps[1]} at n = 128",
        steps == [16, 128],
    )
    lengths = [KERNEL**power for power in (2, 3, 4)]
    dilated = [
        layers_to_connect(lambda depth: lambda x: convolutional(x, dilation=KERNEL**depth), n)
        for n in lengths
    ]
    yield Claim(
        "Table 1",
        f"maximum path length of dilated convolution (k = {KERNEL})",
        "O(log_k n)",
        ", ".join(f"{layers} at n = {n}" for layers, n in zip(dilated, lengths, strict=True)),
        dilated == [2, 3, 4],
    )
    # Twice the length needs twice the layers; twice the radius needs half of them.
    base, longer = (layers_to_connect(lambda _: restricted, n) for n in (33, 65))
    wider = layers_to_connect(lambda _: lambda x: restricted(x, 2 * RADIUS), 33)
    yield Claim(
        "Table 1",
        f"maximum path length of restricted self-attention (r = {2 * RADIUS + 1})",
        "O(n/r)",
        f"{base} at n = 33, {longer} at n = 65; {wider} with r = {4 * RADIUS + 1}",
        longer == 2 * base and base == 2 * wider,
    )
