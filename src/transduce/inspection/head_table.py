"""The heads of a model, as a table to read and as JSON to process."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from transduce.data.batching import Batch, pad
from transduce.data.clean import usable
from transduce.data.corpus import AlignedFiles
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.inspection.heads import Head, HeadReport, examine_heads
from transduce.inspection.output_files import write
from transduce.models.transformer import Transformer

TOKENS = 2048  # in a batch: sentences × the longest
NAMES = {"encoder": "encoder", "decoder": "decoder", "encoder_decoder": "encoder-decoder"}


def heads_of(
    model: Transformer, tokenizer: TokenizerPair, source: Path, target: Path, limit: int, messages: Console
) -> HeadReport:
    """Look at every head over the first ``limit`` usable pairs of two files."""
    batches = read_batches(model, tokenizer, AlignedFiles(source, target), limit, messages.print)
    with Progress(console=messages, transient=True) as progress:
        task = progress.add_task("looking at every head", total=len(batches))
        return examine_heads(model, batches, lambda: progress.advance(task))


def read_batches(
    model: Transformer,
    tokenizer: TokenizerPair,
    files: AlignedFiles,
    limit: int,
    warn: Callable[[str], object] = lambda _: None,
) -> list[Batch]:
    """The first usable pairs that the model can read, those of like length together."""
    kept: list[tuple[list[int], list[int]]] = []
    left_out = 0
    for pair in _pairs(tokenizer, files):
        if len(kept) == limit:
            break
        if pair is None or max(map(len, pair)) > (model.max_length or math.inf):
            left_out += 1
        else:
            kept.append(pair)
    if left_out:
        warn(f"pairs left out, as empty, not UTF-8 or too long for the model: {left_out:,}")
    kept.sort(key=lambda pair: max(map(len, pair)))
    if not kept:
        raise DataError(
            f"{files.source} and {files.target} hold no pair that the model can read", "check the files"
        )
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for pair in kept:
        if groups[-1] and (len(groups[-1]) + 1) * max(map(len, pair)) > TOKENS:
            groups.append([])
        groups[-1].append(pair)
    return [
        pad(
            [np.array(one) for one, _ in group], [np.array(other) for _, other in group], model.vocabulary
        ).to(model.device)
        for group in groups
    ]


def _pairs(tokenizer: TokenizerPair, files: AlignedFiles) -> Iterator[tuple[list[int], list[int]] | None]:
    """Of every line, or nothing where it cannot be used."""
    for chunk in files.chunks():
        clean = usable(chunk)
        found = zip(
            tokenizer.encode_source(clean.sources), tokenizer.encode_target(clean.targets), strict=True
        )
        by_line = dict(zip(clean.lines, found, strict=True))
        yield from (by_line.get(line) for line in chunk.lines)


def print_heads(report: HeadReport, console: Console) -> None:
    """A line a head, the one that is missed least first."""
    console.print(
        f"{report.sentences:,} sentences, {report.tokens:,} target tokens; "
        f"loss {report.loss:.4f} nats a token with all {len(report.heads)} heads",
        highlight=False,
    )
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1), title="Heads, the most dispensable first", title_style="bold"
    )
    table.add_column("attention", no_wrap=True)
    for column in ("layer", "head", "Δ loss", "±", "entropy", "distance", "itself", "previous"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("next", "first", "</s>"):
        table.add_column(column, justify="right", no_wrap=True)
    for head in sorted(report.heads, key=lambda head: head.loss_change):
        table.add_row(*_cells(head))
    console.print(table)
    console.print(
        "Δ loss: in nats a token, when the head gives nothing, and its standard error; such changes do "
        "not add up. Entropy in nats, distance in tokens, shares of the head's attention in percent.",
        style="dim",
    )


def write_json(report: HeadReport, path: Path) -> None:
    """Everything, unrounded."""
    write(path, json.dumps(asdict(report), indent=2) + "\n")


def _cells(head: Head) -> list[Text]:
    # Beyond twice its error a change is more than chance.
    sure = head.loss_error is not None and abs(head.loss_change) > 2 * head.loss_error
    shares = (head.diagonal, head.previous, head.next, head.first, head.end)
    return [
        Text(NAMES[head.attention]),
        Text(str(head.layer)),
        Text(str(head.head)),
        Text(f"{head.loss_change:+.4f}", style="bold" if sure and head.loss_change > 0 else ""),
        Text("" if head.loss_error is None else f"{head.loss_error:.4f}", style="dim"),
        Text(f"{head.entropy:.2f}"),
        Text("–" if head.distance is None else f"{head.distance:.1f}"),
        *(Text("–" if share is None else f"{100 * share:.0f}") for share in shares),
    ]
