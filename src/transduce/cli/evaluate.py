"""``transduce evaluate``."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from transduce.cli import options as o

File = Path | None


def evaluate(
    reference: Annotated[list[Path], Option(metavar="FILE", help="What is right; may be repeated.")],
    model: Annotated[File, typer.Argument(metavar="MODEL", help="A model folder.")] = None,
    source: Annotated[File, Option(metavar="FILE", help="What the model is to translate.")] = None,
    hypotheses: Annotated[File, Option(metavar="FILE", help="Translations, instead of a model.")] = None,
    compare: Annotated[File, Option(metavar="OTHER", help="A second model, or translations.")] = None,
    alternatives: Annotated[bool, Option("--alternatives", help="Tabs part references.")] = False,
    metric: Annotated[
        list[str] | None, Option(metavar="NAME", help="bleu, chrf, ter and exact if not given; per, wer.")
    ] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="Do not look at the case.")] = False,
    tokenize: Annotated[
        str, Option(metavar="NAME", help="For BLEU: 13a, none, intl, zh, char, moses, flores200 …")
    ] = "13a",
    language: Annotated[str | None, Option(metavar="CODE", help="For moses: de, en, …")] = None,
    beam: o.Beam = 4,
    length_penalty: o.LengthPenalty = 0.6,
    precision: o.Precision = "float32",
    output: Annotated[File, Option(metavar="FILE", help="Keep the model's translations here.")] = None,
    json: Annotated[bool, Option("--json", help="Print a JSON object instead of the table.")] = False,
) -> None:
    """Translate a test set and score it; with --compare, say whether another system is better.

    Example: transduce evaluate runs/en-de/final --source test.en --reference test.de
    """
    from transduce.evaluation.evaluate import evaluate as run
    from transduce.evaluation.measurement import Options
    from transduce.evaluation.metrics import USUAL
    from transduce.evaluation.score_table import print_evaluation, result_console

    console = result_console()
    found = run(
        model,
        reference=reference,
        source=source,
        hypotheses=hypotheses,
        compare_with=compare,
        alternatives=alternatives,
        metrics=metric or USUAL,
        options=Options(lowercase, tokenize, language),
        beam=beam,
        length_penalty=length_penalty,
        precision=precision,
        output=output,
    )
    typer.echo(found.to_json()) if json else print_evaluation(found, console)
    found.require_kept()
