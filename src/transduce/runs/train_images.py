"""``transduce vision train``, in Python."""

from pathlib import Path

from rich.console import Console

from transduce.config import RunConfig
from transduce.errors import ConfigError, DataError
from transduce.runs.defaults import UserChoices, config_of
from transduce.runs.image_run import ImageInputs, ImageRun
from transduce.training.distributed import join_workers

LARGEST = 4096  # pixels on a side


def train_images(
    out: str | Path,
    *,
    images: str | Path | None = None,
    valid: str | Path | None = None,
    config: RunConfig | str | Path | None = None,
    size: str | None = None,
    hold_out: float = 0.1,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    console: Console | None = None,
) -> bool:
    """Train a Vision Transformer in the run folder ``out``; says whether the run is finished.

    ``images`` is a folder with a folder of images a class, an idx file of images, or an .npz with ``images``
    and ``labels``; ``size``, such as "32" or "32x48" (height x width), is what the images of a folder are
    brought to. With ``resume`` a run that is in ``out`` goes on. The trained model is in ``out/final``.
    """
    with join_workers() as team:
        run = ImageRun(Path(out).expanduser(), console or Console(quiet=not team.is_main), team)
        return run.carry_out(
            lambda: run.prepare(
                _inputs(images, valid, hold_out, size),
                UserChoices(config=config_of(config), steps=steps, epochs=epochs, minutes=minutes),
            ),
            resume=resume,
            steps=steps,
            tensorboard=tensorboard,
        )


def parse_size(size: str | None) -> tuple[int, int] | None:
    """Height and width, from "32" or "32x48" or nothing."""
    if size is None:
        return None
    parts = size.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) <= LARGEST for part in parts):
        raise ConfigError(
            f"{size!r} is no size", f"give a number of pixels, up to {LARGEST:,}, or HEIGHTxWIDTH"
        )
    return int(parts[0]), int(parts[-1])


def _inputs(
    images: str | Path | None, valid: str | Path | None, hold_out: float, size: str | None
) -> ImageInputs:
    if images is None:
        raise DataError("no images were given, and there is no run to go on with", "name them: --images PATH")
    return ImageInputs(Path(images), None if valid is None else Path(valid), hold_out, parse_size(size))
