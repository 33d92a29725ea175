"""Preparation of a parallel corpus: cleaned, tokenized and written as ids, in one pass and bounded memory."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from transduce.data.chunks import CleanChunk, usable
from transduce.data.corpus import Corpus
from transduce.data.factors import FactorVocabulary
from transduce.data.mixture import mixture_of
from transduce.data.normalization import DEFAULT, Normalization, normalize_text
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.terminal import StatusLine

_SHARES = 10_000
MAX_HELD_OUT = 5_000  # pairs: more would make every validation slower and hardly more precise


@dataclass(frozen=True)
class Prepared:
    """Training and validation pairs, and the number of pairs that were too long."""

    train: Pairs
    valid: Pairs
    too_long: int


def clean_lines(corpus: Corpus) -> Iterator[CleanChunk]:
    """Yield the usable pairs of a corpus."""
    return map(usable, corpus.chunks())


def factor_vocabularies(corpus: Corpus) -> tuple[FactorVocabulary, ...]:
    """Collect the values of each source factor of a corpus, in a pass of its own, which also checks them."""
    values: list[set[str]] = [set() for _ in corpus.factors]
    for chunk in corpus.chunks():
        for known, lines in zip(values, chunk.factors, strict=True):
            known.update(value for line in lines for value in line.split())
    return tuple(map(FactorVocabulary.of, values))


def is_held_out(source: str, share: float, form: Normalization = DEFAULT) -> bool:
    """Return whether a pair is kept for validation: its source decides, so that repetitions stay together."""
    return _bucket(source, form) < share * _SHARES


def _bucket(source: str, form: Normalization) -> int:
    return zlib.crc32(normalize_text(source, form).encode()) % _SHARES


def prepare(
    folder: Path,
    tokenizer: TokenizerPair,
    train: Corpus,
    valid: Corpus | None = None,
    *,
    hold_out: float = 0.02,
    max_length: int = 512,
    pairs: int | None = None,
    console: Console | None = None,
) -> Prepared:
    """Write ``folder/train`` and ``folder/valid``, without pairs that have more than ``max_length`` tokens.

    Without validation data, a share of the training pairs is held out, but no more than about
    `MAX_HELD_OUT` and at least one, each of them once, whatever its weight; ``pairs`` is the number of
    training pairs, if it is known. The tokens of languages are those of the direction of each part. A
    terminal shows how many pairs have been tokenized.
    """
    share = 0.0 if valid else min(hold_out, MAX_HELD_OUT / max(1, pairs or _count(train)))
    console = console or Console(quiet=True)
    prepared, buckets = _write(folder, tokenizer, train, valid, share, max_length, pairs, console)
    if share and not len(prepared.valid) and len(buckets) > 1:  # the share of a few pairs can be none
        share = (min(buckets) + 0.5) / _SHARES
        prepared, _ = _write(folder, tokenizer, train, valid, share, max_length, pairs, console)
    _require_pairs(prepared, max_length)
    return prepared


def _write(
    folder: Path,
    tokenizer: TokenizerPair,
    train: Corpus,
    valid: Corpus | None,
    share: float,
    max_length: int,
    pairs: int | None,
    console: Console,
) -> tuple[Prepared, set[int]]:
    """Write the data of both parts; a ``share`` of the training pairs is held out.

    Also return the buckets of the training pairs, by which the share is chosen.
    """
    form = tokenizer.source.normalization or DEFAULT
    too_long, seen = 0, set[int]()
    sizes = tokenizer.vocabulary.source, tokenizer.vocabulary.target, [*map(len, tokenizer.factors)]
    done = 0
    pairs_of_part = [0 for _ in train.parts]
    with (
        PairWriter(folder / "train", *sizes) as training,
        PairWriter(folder / "valid", *sizes) as validation,
        StatusLine(console, "tokenizing pairs", None if valid else pairs) as status,
    ):
        for corpus, writer in ((train, training), (valid, validation)):
            directions = corpus.directions if corpus else ()
            by_part = [tokenizer.for_languages(*direction) for direction in directions]
            for chunk in clean_lines(corpus) if corpus else ():
                chosen = by_part[chunk.part] if by_part else tokenizer
                sources, *factors = chosen.source_columns(chunk.sources, chunk.factors)
                targets = chosen.target_rows(chunk.targets)
                fits = np.maximum(sources.lengths, targets.lengths) <= max_length
                too_long += int(np.count_nonzero(~fits))
                held_out = np.zeros(len(fits), bool)
                if corpus is train and share:
                    buckets = np.fromiter((_bucket(text, form) for text in chunk.sources), int, len(fits))
                    held_out = buckets < share * _SHARES
                    seen.update(buckets[fits].tolist())
                for destination, rows in ((writer, fits & ~held_out), (validation, fits & held_out)):
                    selected = [factor.select(rows) for factor in factors]
                    destination.write_rows(sources.select(rows), targets.select(rows), selected)
                if corpus is train:
                    pairs_of_part[chunk.part] += int(np.count_nonzero(fits & ~held_out))
                done += len(chunk.sources)
                status.update(done)
    if mixture := mixture_of(pairs_of_part, train.weights):
        mixture.save(folder / "train")
    return Prepared(Pairs.open(folder / "train"), Pairs.open(folder / "valid"), too_long), seen


def _require_pairs(prepared: Prepared, max_length: int) -> None:
    if not len(prepared.train):
        if prepared.too_long:
            raise DataError(f"all pairs have more than {max_length} tokens", "raise --max-length")
        raise DataError("the files contain no usable pair to train on", "run: transduce check")
    if not len(prepared.valid):
        raise DataError(
            f"none of the {len(prepared.train):,} pairs is left for validation",
            "give validation files, or raise --hold-out",
        )


def _count(corpus: Corpus) -> int:
    return sum(len(chunk.sources) for chunk in corpus.chunks())
