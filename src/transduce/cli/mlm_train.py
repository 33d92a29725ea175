"""``transduce mlm train``."""

import sys
from typing import Annotated

from typer import Option

from transduce.cli import options as o
from transduce.cli import text_options as t
from transduce.data.text_files import MAX_LINE_BYTES

Tokenizer = Annotated[
    str | None,
    Option(
        metavar="KIND|FILE",
        help="wordpiece (default); or an existing BERT vocab.txt or tokenizer.json.",
        rich_help_panel=o.TOKENIZER,
    ),
]
Cased = Annotated[
    bool, Option("--cased", help="Distinguish upper and lower case.", rich_help_panel=o.TOKENIZER)
]


def train(
    out: o.Out,
    text: t.Text = None,
    valid: t.Valid = None,
    config: o.Config = None,
    preset: t.BertPreset = None,
    from_model: t.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    tokenizer: Tokenizer = None,
    vocabulary: o.VocabularySize = None,
    cased: Cased = False,
    packed: t.Packed = False,
    max_length: t.Context = None,
    hold_out: t.HoldOut = 0.02,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
    tensorboard: o.Tensorboard = False,
    wandb: o.Wandb = False,
    resume: o.Resume = False,
) -> None:
    """Train a masked language model (BERT) on plain text.

    Example: transduce mlm train --text tales.txt --out runs/tales-bert
    """
    from transduce.cli.resuming import confirm_resume
    from transduce.runs.defaults import parse_overrides
    from transduce.runs.train import train_masked_language_model

    run = train_masked_language_model(
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
        cased=cased,
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
