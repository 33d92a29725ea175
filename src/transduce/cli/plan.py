"""``transduce plan``."""

import typer

from transduce.cli import options as o


def plan(
    context: typer.Context,
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
) -> None:
    """Say what a training run would be like: sizes, speed, memory, time. Trains nothing.

    Example: transduce plan --source train.en --target train.de --preset base --epochs 10
    """
    from rich.console import Console

    from transduce.runs.plan import print_plan
    from transduce.runs.train import plan as make

    console = Console()
    print_plan(make(console, **context.params), console)
