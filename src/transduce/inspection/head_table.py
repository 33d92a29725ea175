"""The attention heads of a model as a table and as JSON."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.data.batching import Batch, batches_by_length, pad
from transduce.data.chunks import usable
from transduce.data.corpus import AlignedFiles
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.inspection.heads import Head, HeadReport, examine_heads
from transduce.inspection.output_files import write
from transduce.models.transformer import Transformer
from transduce.terminal import with_bar

LONGEST = 1024  # tokens of a text: its attention weights grow with their square
BATCH_TOKENS = 2048  # sentences × the longest
NAMES = {"encoder": "encoder", "decoder": "decoder", "encoder_decoder": "enc-dec"}

Pair = tuple[list[int], list[int]]


def examine_files(
    model: Transformer, tokenizer: TokenizerPair, source: Path, target: Path, limit: int, messages: Console
) -> HeadReport:
    """Examine every head over the first ``limit`` usable pairs of two files."""
    batches = read_batches(model, tokenizer, AlignedFiles(source, target), limit, messages.print)
    return examine_heads(model, with_bar(batches, "examining heads, batch", len(batches), messages))


def read_batches(
    model: Transformer,
    tokenizer: TokenizerPair,
    files: AlignedFiles,
    limit: int,
    warn: Callable[[str], object] = lambda _: None,
) -> list[Batch]:
    """Return the first usable pairs in batches of similar length."""
    pairs: list[Pair] = []
    skipped = 0
    for pair in _encoded_pairs(tokenizer, files):
        if len(pairs) == limit:
            break
        if pair is None or max(map(len, pair)) > min(model.max_length or LONGEST, LONGEST):
            skipped += 1
        else:
            pairs.append(pair)
    if skipped:
        warn(f"warning: skipped {skipped:,} pairs that are empty, not UTF-8 or too long for the model")
    if not pairs:
        raise DataError(
            f"{files.source} and {files.target} have no usable pair",
            "give aligned files with text on both sides",
        )
    lengths = [max(map(len, pair)) for pair in pairs]
    return [
        _batch([pairs[index] for index in indices], model)
        for indices in batches_by_length(lengths, BATCH_TOKENS)
    ]


def _batch(pairs: list[Pair], model: Transformer) -> Batch:
    sources, targets = ([np.array(pair[side]) for pair in pairs] for side in (0, 1))
    return pad(sources, targets, model.vocabulary).to(model.device)


def _encoded_pairs(tokenizer: TokenizerPair, files: AlignedFiles) -> Iterator[Pair | None]:
    """Yield the token ids of every line's pair, ``None`` for a pair that is not usable."""
    for chunk in files.chunks():
        clean = usable(chunk)
        encoded = zip(
            tokenizer.encode_source(clean.sources), tokenizer.encode_target(clean.targets), strict=True
        )
        by_line = dict(zip(clean.lines, encoded, strict=True))
        yield from (by_line.get(line) for line in chunk.lines)


def print_heads(report: HeadReport, console: Console) -> None:
    """Print one line per head, in the order of the loss without it."""
    console.print(
        f"{report.sentences:,} sentences, {report.tokens:,} target tokens; "
        f"loss {report.loss:.4f} nats per token with all {len(report.heads)} heads",
        highlight=False,
    )
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        title="Heads, least important first",
        title_style="bold",
    )
    table.add_column("attention", no_wrap=True)
    for column in (
        "layer",
        "head",
        "Δ loss",
        "±",
        "entropy",
        "dist.",
        "self",
        "prev.",
        "next",
        "first",
        "</s>",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for head in sorted(report.heads, key=lambda head: head.loss_change):
        table.add_row(*_cells(head))
    console.print(table)
    console.print(
        "Δ loss: change of the loss in nats per token when the head's output is set to zero, ± its standard "
        "error (changes of several heads do not add up). entropy: in nats. dist.: mean distance in tokens. "
        "Other columns: percentage of the attention on the same, the previous, the next and the first token, "
        "and on </s>.",
        style="dim",
    )


def write_json(report: HeadReport, path: Path) -> None:
    """Write all figures, unrounded."""
    write(path, json.dumps(asdict(report), indent=2) + "\n")


def _cells(head: Head) -> list[Text]:
    is_significant = head.loss_error is not None and abs(head.loss_change) > 2 * head.loss_error
    shares = (head.diagonal, head.previous, head.next, head.first, head.end)
    return [
        Text(NAMES[head.attention]),
        Text(str(head.layer)),
        Text(str(head.head)),
        Text(f"{head.loss_change:+.4f}", style="bold" if is_significant and head.loss_change > 0 else ""),
        Text("" if head.loss_error is None else f"{head.loss_error:.4f}", style="dim"),
        Text(f"{head.entropy:.2f}"),
        Text("–" if head.distance is None else f"{head.distance:.1f}"),
        *(Text("–" if share is None else f"{100 * share:.0f}") for share in shares),
    ]
