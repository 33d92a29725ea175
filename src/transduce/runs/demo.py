"""A task of ours, learned before your eyes: an introduction, and a check that all is installed well."""

import csv
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data.corpus import Corpus
from transduce.decoding.translator import Translator
from transduce.errors import TrainingError
from transduce.inspection.capture import inspect
from transduce.runs.defaults import UserChoices
from transduce.runs.translation_run import Inputs, Run
from transduce.tasks.dates import date_pairs
from transduce.tasks.numbers import number_pairs
from transduce.tasks.sequences import copy_pairs, reverse_pairs

TASKS: dict[str, Callable[[int, int], Iterator[tuple[str, str]]]] = {
    "dates": date_pairs,
    "numbers": number_pairs,
    "copy": copy_pairs,
    "reverse": reverse_pairs,
}
PAIRS, HELD_OUT = 30_000, 500


def config(steps: int) -> RunConfig:
    """Small enough for two cores and two minutes."""
    return RunConfig(
        model=TransformerConfig(
            encoder_layers=2, decoder_layers=1, d_model=128, d_ff=256, heads=4, dropout=0.0, norm="pre"
        ),
        training=TrainingConfig(
            steps=steps,
            warmup=100,
            learning_rate=3e-3,
            schedule="linear",
            max_tokens=3000,
            label_smoothing=0.0,
            validate_every=max(1, steps // 4),
            average=1,
        ),
    )


def divided(task: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Pairs to train on, and texts to try afterwards whose answers no training pair has, however worded."""
    unseen = dict(TASKS[task](HELD_OUT, 0))
    answers = set(unseen.values())
    return list(dict.fromkeys(pair for pair in TASKS[task](PAIRS, 1) if pair[1] not in answers)), unseen


def demo(task: str, out: Path | None, steps: int, console: Console) -> float:
    """Learn a task, show examples; gives the share of held-out texts that came out exactly right."""
    folder = out or Path(tempfile.mkdtemp(prefix=f"transduce-{task}-"))
    if Run(folder / "run").is_prepared:
        raise TrainingError(f"{folder} holds a demo already", "choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    train, unseen = divided(task)
    with (folder / "train.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(
            file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None
        ).writerows(train)
    run = Run(folder / "run", console)
    corpus = Corpus.of([], [], [folder / "train.tsv"], "training")
    assert corpus is not None  # noqa: S101
    run.prepare(Inputs(corpus, tokenizer="char", examined=False), UserChoices(config(steps)))
    if not run.train():
        raise KeyboardInterrupt  # there is no model to show
    translator = Translator.load(run.folder / "final", beam=1)
    said = [translation.text for translation in translator.translate(unseen)]
    right = sum(one == other for one, other in zip(said, unseen.values(), strict=True)) / len(unseen)
    _show(list(unseen.items()), said, console)
    page = folder / "attention.html"
    inspect(translator, next(iter(unseen))).save(page)
    console.print(
        f"{right:.1%} of {len(unseen)} texts came out exactly right; training had none of their answers.\n"
        f"What it looks at while it translates, to open in a browser: {page}\n"
        f"The model is in {run.folder / 'final'}. With your own text, two files that go line by line:\n"
        "  transduce train --source mine.src --target mine.tgt --out runs/mine\n"
        "  transduce translate runs/mine/final --input new.src",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return right


def _show(pairs: list[tuple[str, str]], said: list[str], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("text", "the model says", ""):
        table.add_column(column)
    for (text, wanted), found in list(zip(pairs, said, strict=True))[:15]:
        verdict = "[green]right[/]" if found == wanted else f"[red]wrong[/], it is {wanted}"
        table.add_row(text, found, verdict)
    console.print(table)
