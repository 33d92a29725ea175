"""``transduce mlm finetune``."""

import sys

import typer

from transduce.cli import options as o
from transduce.cli import text_options as t


def finetune(
    context: typer.Context,
    out: o.Out,
    text: t.Labelled = None,
    valid: t.Valid = None,
    start: t.FromModel = None,
    config: o.Config = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    hold_out: t.HoldOut = 0.1,
    tensorboard: o.Tensorboard = False,
    resume: o.Resume = False,
) -> None:
    """Teach a model of masked text to tell the classes of texts, or of pairs of texts.

    Example: transduce mlm finetune --from runs/tales-bert/final --pairs moods.tsv --out runs/moods
    """
    from transduce.cli.resuming import offer
    from transduce.runs.train_text import train_text

    if not train_text("classes", **{**context.params, "resume": resume or offer(out)}):
        sys.exit(130)  # it has said so itself
