"""``transduce lm train``."""

import sys

from transduce.cli import options as o
from transduce.cli import text_options as t
from transduce.data.text_files import MAX_LINE_BYTES


def train(
    out: o.Out,
    text: t.Text = None,
    valid: t.Valid = None,
    config: o.Config = None,
    preset: t.GptPreset = None,
    from_model: t.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    tokenizer: o.TokenizerName = None,
    vocabulary: o.VocabularySize = None,
    normalize: o.Normalize = "nfc",
    packed: t.Packed = True,
    max_length: t.Context = None,
    hold_out: t.HoldOut = 0.02,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
    tensorboard: o.Tensorboard = False,
    wandb: o.Wandb = False,
    resume: o.Resume = False,
) -> None:
    """Train a language model (GPT) on plain text.

    Example: transduce lm train --text tales.txt --out runs/tales
    """
    from transduce.cli.resuming import confirm_resume
    from transduce.runs.defaults import parse_overrides
    from transduce.runs.train import train_language_model

    run = train_language_model(
        out,
        text=text,
        valid=valid,
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
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        normalize=normalize,
        packed=packed,
        max_length=max_length,
        hold_out=hold_out,
        precision=precision,
        device=device,
        tensorboard=tensorboard,
        wandb=wandb,
        resume=resume or confirm_resume(out),
    )
    if not run.finished:
        sys.exit(130)  # interrupted; the resume command has been printed
