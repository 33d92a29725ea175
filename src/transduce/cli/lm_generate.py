"""``transduce lm generate``."""

from typing import Annotated

import typer
from typer import Option

from transduce.cli import options as o


def generate(
    model: o.Model,
    prompt: Annotated[str, Option(metavar="TEXT", help="What the text begins with.")] = "",
    count: Annotated[int, Option(min=1, help="How many texts.")] = 1,
    lines: Annotated[int, Option(min=1, help="Of each; later ones see the earlier.")] = 1,
    max_length: Annotated[int, Option(min=1, help="Tokens of a line, at most.")] = 100,
    min_length: Annotated[int, Option(min=0, help="Tokens of a line, at least.")] = 0,
    sample: Annotated[bool, Option("--sample", help="Draw at random; so it is without --beam.")] = False,
    beam: Annotated[int | None, Option(min=1, help="Search with so many hypotheses; 1 is greedy.")] = None,
    temperature: Annotated[float, Option(help="Below 1: less daring.")] = 1.0,
    top_k: Annotated[int, Option(help="Draw from so many tokens; 0 for all.")] = 0,
    top_p: Annotated[float, Option(help="Draw from this much probability.")] = 1.0,
    no_repeat_ngram: Annotated[int, Option(help="No so many tokens in a row twice.")] = 0,
    length_penalty: o.LengthPenalty = 0.6,
    seed: Annotated[int, Option(help="Of what is drawn.")] = 1,
) -> None:
    """Let a language model write, a text a line.

    Example: transduce lm generate runs/tales/final --prompt "Once upon a time" --top-p 0.9 --count 3
    """
    from transduce.decoding.generator import TextGenerator

    generator = TextGenerator.load(
        model,
        beam=beam,
        sample=sample,
        nbest=count,
        extra_length=max_length,
        max_length=max_length,
        min_length=min_length,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        no_repeat_ngram=no_repeat_ngram,
        length_penalty=length_penalty,
        seed=seed,
    )
    for texts in generator.generate(prompt, lines=lines):
        for one in texts:
            typer.echo(one.line)
