"""``transduce vision train``."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli import options as o

Images = Annotated[
    Path | None,
    Option(
        metavar="PATH",
        help="Images: a folder with one folder per class, an idx file, or an .npz with images and labels.",
        rich_help_panel=o.DATA,
    ),
]
Valid = Annotated[
    Path | None,
    Option(metavar="PATH", help="Validation images, in one of the same forms.", rich_help_panel=o.DATA),
]
Size = Annotated[
    str | None,
    Option(
        metavar="N|HxW",
        help="Scale the images of a folder to this height and width.",
        rich_help_panel=o.DATA,
    ),
]
HoldOut = Annotated[
    float,
    Option(
        metavar="X",
        min=0.0001,
        max=0.5,
        help="Fraction of the images to hold out for validation if --valid is not given.",
        rich_help_panel=o.DATA,
    ),
]
Preset = Annotated[
    str | None, Option(metavar="NAME", help="Model size: vit-small or vit.", rich_help_panel=o.MODEL)
]


def train(
    out: o.Out,
    images: Images = None,
    valid: Valid = None,
    size: Size = None,
    config: o.Config = None,
    preset: Preset = None,
    from_model: o.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    hold_out: HoldOut = 0.1,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
    tensorboard: o.Tensorboard = False,
    wandb: o.Wandb = False,
    resume: o.Resume = False,
) -> None:
    """Train an image classifier (Vision Transformer).

    Example: transduce vision train --images photos --size 32 --out runs/photos

    Example: transduce vision train --images train-images-idx3-ubyte.gz --out runs/digits
    """
    from transduce.cli.resuming import confirm_resume
    from transduce.runs.defaults import parse_overrides
    from transduce.runs.train import train_image_classifier

    run = train_image_classifier(
        out,
        images=images,
        valid=valid,
        size=size,
        config=config,
        preset=preset,
        from_model=from_model,
        overrides=parse_overrides(overrides),
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        learning_rate=learning_rate,
        seed=seed,
        save_minutes=save_minutes,
        hold_out=hold_out,
        precision=precision,
        device=device,
        tensorboard=tensorboard,
        wandb=wandb,
        resume=resume or confirm_resume(out),
    )
    if not run.finished:
        sys.exit(130)  # interrupted; the resume command has been printed
