"""A task of ours, learned before your eyes: an introduction, and a check that all is installed well."""

import csv
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data.corpus import Corpus
from transduce.data.tokenizer import Tokenizer
from transduce.decoding.greedy import greedy
from transduce.models.transformer import Transformer
from transduce.tasks.dates import date_pairs
from transduce.tasks.numbers import number_pairs
from transduce.tasks.sequences import copy_pairs, reverse_pairs
from transduce.training.choices import Wishes
from transduce.training.run import Inputs, Run

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


def demo(task: str, out: Path | None, steps: int, console: Console) -> float:
    """Learn a task, show examples; gives the share of held-out texts that came out exactly right."""
    folder = out or Path(tempfile.mkdtemp(prefix=f"transduce-{task}-"))
    folder.mkdir(parents=True, exist_ok=True)
    unseen = dict(TASKS[task](HELD_OUT, 0))
    train = dict.fromkeys(pair for pair in TASKS[task](PAIRS, 1) if pair[0] not in unseen)
    with (folder / "train.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(
            file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None
        ).writerows(train)
    run = Run(folder / "run", console)
    corpus = Corpus.of([], [], [folder / "train.tsv"], "training")
    assert corpus is not None  # noqa: S101
    run.prepare(Inputs(corpus, tokenizer="char", examined=False), Wishes(config(steps)))
    run.train()
    said = answer(run.folder / "final", list(unseen))
    right = sum(one == other for one, other in zip(said, unseen.values(), strict=True)) / len(unseen)
    _show(list(unseen.items()), said, console)
    console.print(
        f"{right:.1%} of {len(unseen)} texts that it had never seen came out exactly right.\n"
        f"The model is in {run.folder / 'final'}. With your own text, two files that go line by line:\n"
        "  transduce train --source mine.src --target mine.tgt --out runs/mine",
        highlight=False,
        soft_wrap=True,
    )
    return right


def answer(folder: Path, texts: list[str]) -> list[str]:
    """What a model makes of these texts."""
    model, tokenizer = artifact.load(folder), artifact.load_tokenizer(folder)
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    found: dict[int, str] = {}
    for begin in range(0, len(order), 100):
        rows = order[begin : begin + 100]
        for row, ids in zip(rows, _decode(model, tokenizer, [texts[row] for row in rows]), strict=True):
            found[row] = tokenizer.decode(ids)
    return [found[index] for index in range(len(texts))]


def _decode(model: Transformer, tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    ids = [torch.tensor(row) for row in tokenizer.encode_source(texts)]
    source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.vocabulary.pad)
    return greedy(model, source, max_length=source.size(1) + 50)


def _show(pairs: list[tuple[str, str]], said: list[str], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("text", "the model says", ""):
        table.add_column(column)
    for (text, wanted), found in list(zip(pairs, said, strict=True))[:15]:
        verdict = "[green]right[/]" if found == wanted else f"[red]wrong[/], it is {wanted}"
        table.add_row(text, found, verdict)
    console.print(table)
