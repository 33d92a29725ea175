"""``transduce translate``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def translate(
    context: typer.Context,
    model: o.Models,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    format: o.Format = "text",  # noqa: A002 (the option's name)
    beam: o.Beam = 4,
    nbest: Annotated[int, typer.Option(min=1, help="Candidates a line; as many hypotheses at least.")] = 1,
    length_penalty: o.LengthPenalty = 0.6,
    penalty: o.Penalty = "paper",
    coverage_penalty: Annotated[float, typer.Option(help="Cost of source words passed over.")] = 0.0,
    extra_length: Annotated[int, typer.Option(help="Tokens more than the source, at most.")] = 50,
    max_length: Annotated[int | None, typer.Option(help="Tokens at most, with a prefix.")] = None,
    min_length: Annotated[int, typer.Option(help="Tokens, at least.")] = 0,
    no_repeat_ngram: Annotated[int, typer.Option(help="No so many tokens in a row twice.")] = 0,
    prefix: Annotated[str, typer.Option(help="How every translation begins.")] = "",
    constraint: Annotated[list[str] | None, typer.Option(metavar="WORDS", help="Must appear.")] = None,
    glossary: Annotated[Path | None, typer.Option(metavar="FILE", help="Terms: source, tab, target.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random, nbest times.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1: less daring.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from so many tokens; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from this much probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 1,
    diverse_groups: Annotated[int, typer.Option(help="Divide the beam into groups that differ.")] = 1,
    diversity: Annotated[float, typer.Option(help="How much they differ.")] = 0.5,
    stop: o.Stop = "exact",
    precision: o.Precision = "float32",
    too_long: o.TooLong = "split",
) -> None:
    """Translate lines: one out for every one in, in order; empty ones stay empty.

    Example: transduce translate runs/en-de/final --input test.en --output test.de
    """
    from rich.console import Console

    from transduce.decoding.files import translate_file
    from transduce.decoding.glossary import Glossary
    from transduce.decoding.translator import Translator
    from transduce.machine import keep_memory

    keep_memory()
    others = {"context", "model", "input", "output", "format", "constraint", "glossary"}
    translator = Translator.load(
        *model,
        glossary=Glossary.read(glossary, tuple(constraint or ())),
        align=format == "json",
        warn=lambda message: typer.echo(f"warning: {message}", err=True),
        **{name: value for name, value in context.params.items() if name not in others},
    )
    translate_file(translator, input, output, format, Console(stderr=True), glossary)
