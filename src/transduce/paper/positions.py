"""Properties of the sinusoidal positional encoding (section 3.5)."""

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
    """Check norms, wavelengths, offsets and distances, and that positions are needed at all."""
    table = sinusoids(LENGTH, WIDTH).double()
    yield _order_needs_positions()
    yield _norm(table)
    yield _wavelengths()
    yield _offset_is_linear(table)
    yield _distance_depends_on_offset(table)
    yield _distance_grows(table)


def _order_needs_positions() -> Claim:
    config = TransformerConfig(encoder_layers=2, decoder_layers=1, d_model=64, d_ff=128, heads=4)
    source = torch.arange(3, 13)[None]
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    change = {}
    for positions in ("none", "sinusoidal"):
        changed = config.model_copy(update={"positions": positions})
        model = build(changed, Vocabulary(source=13, target=13), seed=0).eval()
        with torch.no_grad():
            shuffled_after = model.encode(source).states[:, order]
            shuffled_before = model.encode(source[:, order]).states
        change[positions] = (shuffled_after - shuffled_before).abs().max().item()
    return Claim(
        "3.5",
        "without positions, the encoder ignores word order",
        "must be added",
        f"shuffling changes it by {change['none']:.0e}, with positions by {change['sinusoidal']:.1f}",
        change["none"] < 1e-5 and change["sinusoidal"] > 0.1,
    )


def _norm(table: Tensor) -> Claim:
    norms = table.norm(dim=-1)
    return Claim(
        "3.5",
        f"‖PE(pos)‖ = √(d/2) at every position (d = {WIDTH})",
        f"{math.sqrt(WIDTH / 2):.4f}",
        f"{norms.min():.4f} to {norms.max():.4f}",
        (norms - math.sqrt(WIDTH / 2)).abs().max().item() < 1e-4,
    )


def _wavelengths() -> Claim:
    wavelengths = 1 / frequencies(WIDTH)
    ratio = wavelengths[1:] / wavelengths[:-1]
    geometric = (ratio - ratio[0]).abs().max().item() < 1e-9
    return Claim(
        "3.5",
        "wavelengths form a geometric progression from 2π",
        "to 10000·2π",
        f"to {wavelengths[-1]:.0f}·2π (2i ends at d − 2)",
        geometric and wavelengths[0].item() == 1.0 and 9000 < wavelengths[-1].item() <= 10_000,
    )


def _offset_is_linear(table: Tensor, offset: int = 17) -> Claim:
    """Rotate each pair of dimensions by an angle that is the same for every position."""
    angle = offset * frequencies(WIDTH)
    rotations = torch.stack((angle.cos(), angle.sin(), -angle.sin(), angle.cos()), -1).view(-1, 2, 2)
    linear_map = torch.block_diag(*rotations)  # type: ignore[no-untyped-call]  # (d, d)
    error = (table[:-offset] @ linear_map.T - table[offset:]).abs().max().item()
    return Claim(
        "3.5",
        f"PE(pos+{offset}) is a linear function of PE(pos)",
        "linear",
        f"maximum error {error:.0e}",
        error < 1e-5,
    )


def distances(table: Tensor) -> Tensor:
    """Return the distance between every two positions, (length, length)."""
    return torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")


def _distance_depends_on_offset(table: Tensor) -> Claim:
    pairwise = distances(table[:200])
    spread = max((pairwise.diagonal(k).max() - pairwise.diagonal(k).min()).item() for k in range(1, 150))
    return Claim(
        "3.5",
        "the distance of two positions depends on their offset only",
        "relative",
        f"maximum difference {spread:.0e}",
        spread < 1e-4,
    )


def _distance_grows(table: Tensor) -> Claim:
    from_zero = distances(table)[0]
    falls = (from_zero[1:] < from_zero[:-1]).nonzero()
    first = int(falls[0]) if len(falls) else LENGTH
    return Claim(
        "3.5",
        "the distance grows with small offsets only",
        "(not claimed)",
        f"grows up to offset {first}: {from_zero[1]:.2f} → {from_zero[first]:.2f}",
        3 <= first < LENGTH - 1,
    )
