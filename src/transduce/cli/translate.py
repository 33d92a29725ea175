"""``transduce translate``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def translate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    input: Annotated[  # noqa: A002 (the option's name)
        Path | None,
        typer.Option(metavar="FILE", help="Text, a sentence a line; standard input if not given."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Standard output if not given.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses at a time; 1 is greedy search.")] = 4,
    nbest: Annotated[int, typer.Option(min=1, help="Candidates a line; more than 1 for json.")] = 1,
    length_penalty: Annotated[float, typer.Option(min=0.0, help="The paper's α.")] = 0.6,
    extra_length: Annotated[int, typer.Option(min=0, help="Tokens more than the source has, at most.")] = 50,
    format: Annotated[  # noqa: A002 (the option's name)
        Literal["text", "json"], typer.Option(help="json: candidates with scores, a line each.")
    ] = "text",
) -> None:
    """Translate lines: one out for every one in, in order.

    Example: transduce translate runs/en-de/final --input test.en --output test.de
    """
    from transduce.decoding.files import translate_file
    from transduce.decoding.translator import Translator

    translator = Translator.load(
        model,
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        extra_length=extra_length,
        warn=lambda message: typer.echo(f"warning: {message}", err=True),
    )
    translate_file(translator, input, output, format)
