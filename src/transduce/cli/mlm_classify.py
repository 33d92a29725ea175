"""``transduce mlm classify``."""

import typer

from transduce.cli import options as o


def classify(
    model: o.Model,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
) -> None:
    """Tell the class of every line: the class, tab, its probability. `mlm finetune` teaches a model to.

    A line is a text, or two texts with a tab between them.

    Example: transduce mlm classify runs/moods/final --input lines.txt
    """
    from transduce.prediction.masked_text import MaskedText
    from transduce.prediction.masked_text_files import classify_file

    loaded = MaskedText.load(model, warn=lambda message: typer.echo(f"warning: {message}", err=True))
    classify_file(loaded, input, output)
