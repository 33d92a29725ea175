"""``transduce mlm train``."""

import sys
from typing import Annotated

import typer

from transduce.cli import options as o
from transduce.cli import text_options as t


def train(
    context: typer.Context,
    out: o.Out,
    text: t.Text = None,
    valid: t.Valid = None,
    config: o.Config = None,
    preset: t.BertPreset = None,
    start: t.FromModel = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="KIND|FILE", help="wordpiece; or BERT's vocab.txt, a tokenizer.json."),
    ] = None,
    vocabulary: o.VocabularySize = None,
    cased: Annotated[bool, typer.Option("--cased", help="Tell A from a.")] = False,
    packed: t.Packed = False,
    max_length: t.Context = None,
    hold_out: t.HoldOut = 0.02,
    tensorboard: o.Tensorboard = False,
    resume: o.Resume = False,
) -> None:
    """Train a model of masked text.

    Example: transduce mlm train --text tales.txt --out runs/tales-bert
    """
    from transduce.cli.resuming import offer
    from transduce.runs.train_text import train_text

    if not train_text("mlm", **{**context.params, "resume": resume or offer(out)}):
        sys.exit(130)  # it has said so itself
