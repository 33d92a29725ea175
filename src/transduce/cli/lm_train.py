"""``transduce lm train``."""

import sys

import typer

from transduce.cli import options as o
from transduce.cli import text_options as t


def train(
    context: typer.Context,
    out: o.Out,
    text: t.Text = None,
    valid: t.Valid = None,
    config: o.Config = None,
    preset: t.GptPreset = None,
    start: t.FromModel = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    tokenizer: o.TokenizerName = None,
    vocabulary: o.VocabularySize = None,
    packed: t.Packed = True,
    max_length: t.Context = None,
    hold_out: t.HoldOut = 0.02,
    tensorboard: o.Tensorboard = False,
    resume: o.Resume = False,
) -> None:
    """Train a language model on plain text.

    Example: transduce lm train --text tales.txt --out runs/tales
    """
    from transduce.cli.resuming import offer
    from transduce.runs.train_text import train_text

    if not train_text("lm", **{**context.params, "resume": resume or offer(out)}):
        sys.exit(130)  # it has said so itself
