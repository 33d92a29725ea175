"""The demo: train a small Transformer on a bundled task, and show what it has learned."""

import csv
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.decoding.translator import Translator
from transduce.errors import TrainingError
from transduce.inspection.capture import inspect
from transduce.runs.train import train
from transduce.tasks.dates import date_pairs
from transduce.tasks.numbers import number_pairs
from transduce.tasks.sequences import copy_pairs, reverse_pairs
from transduce.terminal import print_line

PAIRS, HELD_OUT, SHOWN = 30_000, 500, 10
PAGE_BEAM = 4  # a greedy search has no tree to look at


@dataclass(frozen=True)
class DemoTask:
    """A bundled task: what the model learns, and a function (count, seed) that makes pairs for it."""

    goal: str
    make_pairs: Callable[[int, int], Iterator[tuple[str, str]]]


TASKS = {
    "dates": DemoTask("rewrite dates in 28 languages in ISO 8601 format", date_pairs),
    "numbers": DemoTask("rewrite numbers in the formats of 20 locales as plain digits", number_pairs),
    "copy": DemoTask("copy words of random letters", copy_pairs),
    "reverse": DemoTask("reverse words of random letters", reverse_pairs),
}


def demo_config(steps: int) -> RunConfig:
    """Return a configuration that learns a task in about two minutes on two cores."""
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


def split_pairs(task: DemoTask) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return pairs for training, and held-out ones whose targets occur in no training pair."""
    held_out = dict(task.make_pairs(HELD_OUT, 0))
    targets = set(held_out.values())
    return list(dict.fromkeys(pair for pair in task.make_pairs(PAIRS, 1) if pair[1] not in targets)), held_out


def run_demo(name: str, out: Path | None, steps: int, console: Console) -> float:
    """Train on a task and show examples; return the fraction of held-out texts with the exact output."""
    folder = out or Path(tempfile.mkdtemp(prefix=f"transduce-{name}-"))
    if (folder / "run").exists():
        raise TrainingError(f"{folder} already contains a demo", "choose another --out")
    print_line(console, f"A small Transformer learns to {TASKS[name].goal}.")
    pairs, held_out = split_pairs(TASKS[name])
    _write_pairs(folder / "train.tsv", pairs)
    print_line(console, f"Its {len(pairs):,} examples are in {folder / 'train.tsv'}\n")
    model = _train(folder, steps, console)
    translator = Translator.load(model, beam=1)
    outputs = [translation.text for translation in translator(held_out)]
    correct = sum(output == target for output, target in zip(outputs, held_out.values(), strict=True))
    print_line(console, "\nWhat it does with texts it has never seen:")
    console.print(_examples(held_out, outputs))
    page = folder / "attention.html"
    searcher = Translator.load(model, beam=PAGE_BEAM, precision="float32")
    inspect(searcher, _page_source(held_out, outputs)).save(page)
    print_line(
        console,
        f"{correct} of {len(held_out)} unseen texts ({correct / len(held_out):.1%}) are exactly right.\n\n"
        f"See what the model attends to, in a browser:\n  {page}\n"
        f"Try the model with your own input:\n  transduce interactive {model}\n"
        "Train on your own files:\n"
        "  transduce train --source train.en --target train.de --out runs/en-de",
    )
    return correct / len(held_out)


def _train(folder: Path, steps: int, console: Console) -> Path:
    """Train in ``folder/run`` on ``folder/train.tsv``; return the final model folder."""
    run = train(
        folder / "run",
        pairs=folder / "train.tsv",
        tokenizer="char",
        config=demo_config(steps),
        check=False,
        console=console,
    )
    if not run.finished:
        raise KeyboardInterrupt  # there is no model to show
    return run.final


def _write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
        writer.writerows(pairs)


def _examples(held_out: Mapping[str, str], outputs: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("input", "output", ""):
        table.add_column(column)
    by_source = dict(zip(held_out, outputs, strict=True))
    for source in _instructive(held_out)[:SHOWN]:
        correct = by_source[source] == held_out[source]
        verdict = "[green]correct[/]" if correct else f"[red]wrong[/], expected {held_out[source]}"
        table.add_row(source, by_source[source], verdict)
    return table


def _instructive(sources: Mapping[str, str]) -> list[str]:
    """Return the sources with letters, or all if there are none: 2019/02/15 shows little."""
    return [source for source in sources if any(map(str.isalpha, source))] or list(sources)


def _page_source(held_out: Mapping[str, str], outputs: Sequence[str]) -> str:
    """Return the shown example with the most letters, such as a month in words; a correct one if possible."""
    by_source = dict(zip(held_out, outputs, strict=True))

    def merit(source: str) -> tuple[bool, int]:
        return by_source[source] == held_out[source], sum(map(str.isalpha, source))

    return max(_instructive(held_out)[:SHOWN], key=merit)
