"""Figures that explanations of the paper commonly show."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from transduce.errors import TransduceError, reason_of, require_matplotlib
from transduce.nn.masks import causal_mask, padding_mask
from transduce.nn.positional import sinusoids
from transduce.paper.cost import CHUNK, GLOBAL_TOKENS, KERNEL, LATER, RADIUS, RANK, TABLE_1, cost
from transduce.paper.positions import distances
from transduce.training.schedule import paper_schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_plots(folder: str | Path) -> Iterator[Path]:
    """Write every figure as PNG into a folder; yield each path as soon as it is written."""
    require_matplotlib("plots")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise TransduceError(f"{folder} is a file, not a folder", "choose another folder")
    for name, (size, draw) in _PLOTS.items():
        path = folder / f"{name}.png"
        # Use matplotlib's default settings, whatever the user's matplotlibrc.
        with mpl.rc_context(mpl.rcParamsDefault):
            figure = Figure(figsize=size, layout="constrained", dpi=120)
            draw(figure.subplots())
            try:
                folder.mkdir(parents=True, exist_ok=True)
                figure.savefig(path)
            except OSError as error:
                raise TransduceError(
                    f"cannot write {path}: {reason_of(error)}", "choose another folder"
                ) from error
        yield path


def _positional_waves(axes: "Axes") -> None:
    table = sinusoids(100, 20)
    for dimension in (4, 5, 6, 7):
        kind = "sin" if dimension % 2 == 0 else "cos"
        axes.plot(table[:, dimension].numpy(), label=f"dimension {dimension} ({kind})")
    axes.set(xlabel="position", ylabel="value", title="Positional encoding: one wave per dimension (d = 20)")
    axes.set_xlim(0, 99)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=4)
    axes.grid(alpha=0.3)


def _positional_heat_map(axes: "Axes") -> None:
    image = axes.imshow(sinusoids(100, 128).numpy(), aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    axes.set(
        xlabel="dimension",
        ylabel="position",
        title="Positional encoding: sine on even, cosine on odd (d = 128)",
    )
    axes.figure.colorbar(image, ax=axes, label="value")


def _position_distances(axes: "Axes") -> None:
    image = axes.imshow(distances(sinusoids(100, 128)).numpy(), cmap="viridis")
    axes.set(xlabel="position", ylabel="position", title="Distance between positional encodings (d = 128)")
    axes.figure.colorbar(image, ax=axes, label="Euclidean distance")


def _learning_rate(axes: "Axes") -> None:
    steps = range(1, 20_001, 20)
    for d_model, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        rates = [paper_schedule(step, d_model=d_model, warmup=warmup) for step in steps]
        axes.plot(steps, rates, label=f"d_model {d_model}, warm-up {warmup}")
    axes.set(xlabel="step", ylabel="learning rate", title="The paper's learning-rate schedule")
    axes.set_xlim(0, 20_000)
    axes.set_ylim(0)
    axes.legend()
    axes.grid(alpha=0.3)


def _target_mask(axes: "Axes") -> None:
    tokens = ["<s>", "I", "go", "home", "<pad>"]
    ids = torch.tensor([[1, 3, 4, 5, 0]])
    mask = causal_mask(5) & padding_mask(ids, pad=0)
    axes.imshow(mask.numpy(), cmap="cividis", vmin=0, vmax=1)
    axes.set_xticks(range(5), tokens)
    axes.set_yticks(range(5), tokens)
    for row in range(5):
        for column in range(5):
            seen = bool(mask[row, column])
            axes.text(
                column,
                row,
                "visible" if seen else "–",
                ha="center",
                va="center",
                color="black" if seen else "white",
            )
    axes.set(
        xlabel="key", ylabel="query", title="The decoder's mask: earlier positions and itself, no padding"
    )


def _layer_costs(axes: "Axes") -> None:
    lengths, width = [2**power for power in range(4, 11)], 128
    for layer, marker in zip(TABLE_1, "osD^", strict=True):
        counted = [cost(layer.run, n, width) for n in lengths]
        axes.loglog(lengths, counted, marker=marker, base=2, label=f"{layer.name}: {layer.complexity}")
    for layer, marker in zip(LATER, "v<>", strict=True):
        counted = [cost(layer.run, n, width) for n in lengths]
        axes.loglog(
            lengths,
            counted,
            marker=marker,
            linestyle="--",
            base=2,
            label=f"{layer.name}: {layer.complexity}",
        )
    axes.axvline(width, color="gray", linestyle=":")
    axes.text(width * 1.05, axes.get_ylim()[0] * 1.5, "n = d", color="gray")
    axes.set(
        xlabel="length n",
        ylabel="multiplications, counted",
        title=f"Table 1: cost of a layer (d = {width}, k = {KERNEL}, r = {2 * RADIUS + 1}),\n"
        f"and of later kinds of attention (g = {GLOBAL_TOKENS}, rank {RANK}, c = {CHUNK})",
    )
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)


_PLOTS: dict[str, tuple[tuple[float, float], Callable[["Axes"], None]]] = {
    "positional-waves": ((9, 4), _positional_waves),
    "positional-heat-map": ((7, 5), _positional_heat_map),
    "position-distances": ((6, 5), _position_distances),
    "learning-rate": ((7, 4), _learning_rate),
    "target-mask": ((5, 5), _target_mask),
    "layer-costs": ((8, 6.5), _layer_costs),
}
