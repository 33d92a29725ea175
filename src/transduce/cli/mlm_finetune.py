"""``transduce mlm finetune``."""

import sys

from transduce.cli import options as o
from transduce.cli import text_options as t
from transduce.data.text_files import MAX_LINE_BYTES


def finetune(
    out: o.Out,
    pairs: t.Labelled = None,
    valid: t.Valid = None,
    config: o.Config = None,
    from_model: t.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    hold_out: t.HoldOut = 0.1,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
    tensorboard: o.Tensorboard = False,
    wandb: o.Wandb = False,
    resume: o.Resume = False,
) -> None:
    """Fine-tune a masked language model to classify texts, or pairs of texts.

    Example: transduce mlm finetune --from runs/tales-bert/final --pairs moods.tsv --out runs/moods
    """
    from transduce.cli.resuming import confirm_resume
    from transduce.runs.defaults import parse_overrides
    from transduce.runs.train import finetune_text_classifier

    run = finetune_text_classifier(
        out,
        pairs=pairs,
        valid=valid,
        config=config,
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
