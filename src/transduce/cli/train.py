"""``transduce train``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.options import Files, Pairs, Source, Target


def train(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run folder.")],
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: Files = None,
    valid_target: Files = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A run file (TOML).")] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="tiny, small, base, big, A1 … E.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="How long; chosen from the data if not given.")
    ] = None,
    tokenizer: Annotated[Literal["bpe", "unigram", "wordpiece", "char", "byte"], typer.Option()] = "bpe",
    vocabulary: Annotated[int, typer.Option(help="The most tokens.")] = 8000,
    separate: Annotated[bool, typer.Option("--separate", help="A vocabulary for each side.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse text that has anything wrong with it.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
) -> None:
    """Train a model on pairs of texts.

    Example: transduce train --source train.en --target train.de --out runs/en-de
    """
    from transduce.config import read_toml
    from transduce.data.corpus import Corpus
    from transduce.errors import DataError
    from transduce.training.run import Inputs, Run

    run = Run(out)
    if not (resume and run.is_prepared):
        corpus = Corpus.of(source or [], target or [], pairs or [], "training")
        if corpus is None:
            raise DataError("no files were given", "name them: --source FILE --target FILE, or --pairs FILE")
        valid = Corpus.of(valid_source or [], valid_target or [], [], "validation")
        inputs = Inputs(corpus, valid, tokenizer, vocabulary, joint=not separate, strict=strict)
        run.prepare(inputs, read_toml(config) if config else None, preset_name=preset, steps=steps)
    if run.train():
        typer.echo(
            f"the model is in {out / 'final'}; the one with the lowest validation loss in {out / 'best'}"
        )
    else:
        typer.echo(f"stopped; to go on: transduce train --resume --out {out}")
        raise typer.Exit(130)
