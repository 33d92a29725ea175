"""What the sinusoids can do (section 3.5)."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from transduce.config import TransformerConfig, Vocabulary
from transduce.models.build import build
from transduce.nn.positional import frequencies, sinusoids
from transduce.paper.claim import Claim

LENGTH, WIDTH = 1000, 512


def claims() -> Iterator[Claim]:
    """Norms, wavelengths, offsets, distances, and why positions are needed at all."""
    table = sinusoids(LENGTH, WIDTH).double()
    yield _order_is_invisible_without_them()
    yield _norm(table)
    yield _wavelengths()
    yield _offset_is_linear(table)
    yield _distance_depends_on_offset(table)
    yield _distance_grows(table)


def _order_is_invisible_without_them() -> Claim:
    config = TransformerConfig(encoder_layers=2, decoder_layers=1, d_model=64, d_ff=128, heads=4)
    source = torch.arange(3, 13)[None]
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    change = {}
    for positions in ("none", "sinusoidal"):
        changed = config.model_copy(update={"positions": positions})
        model = build(changed, Vocabulary(source=13, target=13), seed=0).eval()
        with torch.no_grad():
            there, back = model.encode(source).states[:, order], model.encode(source[:, order]).states
        change[positions] = (there - back).abs().max().item()
    return Claim(
        "3.5",
        "without positions, the encoder cannot see order",
        "must be injected",
        f"shuffling moves it {change['none']:.0e}, with them {change['sinusoidal']:.1f}",
        change["none"] < 1e-5 and change["sinusoidal"] > 0.1,
    )


def _norm(table: Tensor) -> Claim:
    norms = table.norm(dim=-1)
    return Claim(
        "3.5",
        f"‖PE(pos)‖ = √(d/2) everywhere (d = {WIDTH})",
        f"{math.sqrt(WIDTH / 2):.4f}",
        f"{norms.min():.4f} to {norms.max():.4f}",
        (norms - math.sqrt(WIDTH / 2)).abs().max().item() < 1e-4,
    )


def _wavelengths() -> Claim:
    in_turns = 1 / frequencies(WIDTH)
    ratio = in_turns[1:] / in_turns[:-1]
    geometric = (ratio - ratio[0]).abs().max().item() < 1e-9
    return Claim(
        "3.5",
        "wavelengths rise geometrically from 2π",
        "to 10000·2π",
        f"to {in_turns[-1]:.0f}·2π, as 2i ends at d − 2",
        geometric and in_turns[0].item() == 1.0 and 9000 < in_turns[-1].item() <= 10_000,
    )


def _offset_is_linear(table: Tensor, offset: int = 17) -> Claim:
    """A rotation of each pair of dimensions, the same for every position."""
    angle = offset * frequencies(WIDTH)
    turns = torch.stack((angle.cos(), angle.sin(), -angle.sin(), angle.cos()), -1).view(-1, 2, 2)
    linear_map = torch.block_diag(*turns)  # type: ignore[no-untyped-call]  # (d, d)
    error = (table[:-offset] @ linear_map.T - table[offset:]).abs().max().item()
    return Claim(
        "3.5",
        f"PE(pos+{offset}) is one linear map of PE(pos)",
        "linear",
        f"largest error {error:.0e}",
        error < 1e-5,
    )


def distances(table: Tensor) -> Tensor:
    """Between every two positions: (length, length)."""
    return torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")


def _distance_depends_on_offset(table: Tensor) -> Claim:
    apart = distances(table[:200])
    spread = max((apart.diagonal(k).max() - apart.diagonal(k).min()).item() for k in range(1, 150))
    return Claim(
        "3.5",
        "distance depends on the offset alone",
        "relative positions",
        f"differs by {spread:.0e} at most",
        spread < 1e-4,
    )


def _distance_grows(table: Tensor) -> Claim:
    from_zero = distances(table)[0]
    falls = (from_zero[1:] < from_zero[:-1]).nonzero()
    first = int(falls[0]) if len(falls) else LENGTH
    return Claim(
        "3.5",
        "distance grows nearby, but not for ever",
        "(not claimed)",
        f"up to offset {first}: {from_zero[1]:.2f} → {from_zero[first]:.2f}",
        3 <= first < LENGTH - 1,
    )
