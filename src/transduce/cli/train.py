"""``transduce train``."""

import sys

import typer

from transduce.cli import options as o


def train(
    context: typer.Context,
    out: o.Out,
    source: o.Source = None,
    target: o.Target = None,
    pairs: o.Pairs = None,
    valid_source: o.ValidSource = None,
    valid_target: o.ValidTarget = None,
    valid_pairs: o.ValidPairs = None,
    config: o.Config = None,
    preset: o.Preset = None,
    family: o.Family = None,
    start: o.FromModel = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    tokenizer: o.TokenizerName = None,
    vocabulary: o.VocabularySize = None,
    separate: o.Separate = False,
    hold_out: o.HoldOut = 0.02,
    max_length: o.MaxLength = 512,
    strict: o.Strict = False,
    tensorboard: o.Tensorboard = False,
    resume: o.Resume = False,
) -> None:
    """Train a model on pairs of texts.

    Example: transduce train --source train.en --target train.de --out runs/en-de

    On several processes: torchrun --nproc-per-node 2 -m transduce train ...
    """
    from transduce.cli.resuming import offer
    from transduce.runs.train import train as run

    finished = run(**{**context.params, "resume": resume or offer(out)})
    if not finished:
        sys.exit(130)  # it has said so itself
