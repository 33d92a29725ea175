"""``transduce vision train``."""

import sys

from transduce.cli import options as o
from transduce.cli import vision_options as v


def train(
    out: o.Out,
    images: v.Images = None,
    valid: v.Valid = None,
    size: v.Size = None,
    config: o.Config = None,
    preset: v.Preset = None,
    from_model: o.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    hold_out: v.HoldOut = 0.1,
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
