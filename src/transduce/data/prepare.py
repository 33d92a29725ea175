"""From a corpus to a prepared corpus: cleaned, tokenised, written as ids; in one pass and bounded memory."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transduce.data.clean import CleanChunk, usable
from transduce.data.corpus import Corpus
from transduce.data.normalization import normalize_text
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError

_SHARES = 10_000
MOST_HELD_OUT = 5_000  # pairs: a closer figure is not worth the time that every validation would take


@dataclass(frozen=True)
class Prepared:
    """Training and validation pairs, and how many were too long."""

    train: Pairs
    valid: Pairs
    too_long: int


def clean_lines(corpus: Corpus) -> Iterator[CleanChunk]:
    """The usable pairs of a corpus."""
    return map(usable, corpus.chunks())


def is_held_out(source: str, share: float) -> bool:
    """Whether a pair is kept for validation: its source decides, so that repetitions stay on one side."""
    return zlib.crc32(normalize_text(source).encode()) % _SHARES < share * _SHARES


def prepare(
    folder: Path,
    tokenizer: TokenizerPair,
    train: Corpus,
    valid: Corpus | None = None,
    *,
    hold_out: float = 0.02,
    max_length: int = 512,
    progress: Callable[[int], None] = lambda _: None,
) -> Prepared:
    """Write ``folder/train`` and ``folder/valid``; pairs with a side over ``max_length`` tokens are left out.

    Without validation data, a share of the training pairs is held out, but no more than about
    `MOST_HELD_OUT`. ``progress`` hears each chunk's size.
    """
    share = 0.0 if valid else min(hold_out, MOST_HELD_OUT / max(1, _count(train)))
    too_long = 0
    sizes = tokenizer.vocabulary.source, tokenizer.vocabulary.target
    with PairWriter(folder / "train", *sizes) as kept, PairWriter(folder / "valid", *sizes) as held:
        for corpus, writer in ((train, kept), (valid, held)):
            for chunk in clean_lines(corpus) if corpus else ():
                sources, targets = (
                    tokenizer.source_rows(chunk.sources),
                    tokenizer.target_rows(chunk.targets),
                )
                fits = np.maximum(sources.lengths, targets.lengths) <= max_length
                too_long += int(np.count_nonzero(~fits))
                out = (corpus is train and is_held_out(text, share) for text in chunk.sources)
                away = np.fromiter(out, bool, len(fits))
                for destination, rows in ((writer, fits & ~away), (held, fits & away)):
                    destination.write_rows(sources.select(rows), targets.select(rows))
                progress(len(chunk.sources))
    prepared = Prepared(Pairs.open(folder / "train"), Pairs.open(folder / "valid"), too_long)
    if not len(prepared.train):
        if too_long:
            raise DataError(f"all pairs are longer than {max_length} tokens", "raise the greatest length")
        raise DataError("the files hold no usable pair to train on", "run: transduce check")
    if not len(prepared.valid):
        raise DataError(
            f"of {len(prepared.train):,} pairs none is left for validation",
            "give validation files, or hold out a larger share",
        )
    return prepared


def _count(corpus: Corpus) -> int:
    return sum(len(chunk.sources) for chunk in corpus.chunks())
