"""Make a shortlist, and measure what it costs in BLEU and saves in time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from transduce import artifact
from transduce.data.corpus import Corpus
from transduce.data.language_tags import Direction
from transduce.data.prepare import clean_lines
from transduce.data.text_files import is_same_file
from transduce.decoding.shortlist_learning import coverage, learn_shortlist
from transduce.decoding.streams import refuse_model_file
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.evaluation.metrics import measure
from transduce.files import user_path
from transduce.terminal import with_bar

Pairs = list[tuple[str, str]]
_LINES = 1_000  # that are translated twice: enough to see a difference of a tenth of a point


@dataclass(frozen=True)
class Cost:
    """BLEU and seconds for some lines, with a shortlist and without."""

    lines: int
    bleu: float
    bleu_without: float
    seconds: float
    seconds_without: float

    def __str__(self) -> str:
        return (
            f"BLEU {self.bleu:.2f} with the shortlist, {self.bleu_without:.2f} without it "
            f"({self.bleu - self.bleu_without:+.2f}); {self.lines:,} lines took {self.seconds:.1f} s with it "
            f"and {self.seconds_without:.1f} s without it"
        )


@dataclass(frozen=True)
class ShortlistReport:
    """How long the lists of a corpus are, how much they cover, and what they cost."""

    path: Path
    corpus: str  # training or validation
    vocabulary: int
    length: float  # mean length of a list
    coverage: float  # share of the target tokens that are in their lists
    cost: Cost | None  # with validation pairs

    def lines(self) -> Iterator[str]:
        """Yield what the user should know."""
        yield (
            f"{self.path}: {self.length:,.0f} of {self.vocabulary:,} target tokens per line on average; "
            f"{self.coverage:.2%} of the tokens of the {self.corpus} targets are in their lists"
        )
        yield str(self.cost or "to measure BLEU with and without it, add --valid-source and --valid-target")


def make_shortlist(
    model: Path,
    corpus: Corpus,
    out: Path,
    *,
    valid: Corpus | None,
    source_language: str | None = None,
    target_language: str | None = None,
    frequent: int,
    aligned: int,
    max_pairs: int,
    console: Console,
) -> ShortlistReport:
    """Learn a shortlist from training pairs, write it, and measure it on validation pairs, if any.

    ``source_language`` and ``target_language`` are those of a model that has several.
    """
    out = user_path(out)
    direction = source_language, target_language
    tokenizer = artifact.load_tokenizer(model).for_languages(*direction)
    tokenizer.check_languages()
    _check_output(
        out, [path for each in (corpus, valid) if each for part in each.parts for path in part.paths]
    )
    pairs = _validation_pairs(valid) if valid else None
    if valid and tokenizer.factors:
        raise DataError(
            "the model has source factors, which cannot be measured here", "leave out the validation files"
        )
    shortlist = learn_shortlist(
        corpus, tokenizer, frequent=frequent, aligned=aligned, max_pairs=max_pairs, console=console
    )
    shortlist.save(out)
    covered, length = coverage(shortlist, valid or corpus, tokenizer)
    return ShortlistReport(
        path=out,
        corpus="validation" if valid else "training",
        vocabulary=tokenizer.vocabulary.target,
        length=length,
        coverage=covered,
        cost=_measure(model, direction, out, pairs, console) if pairs else None,
    )


def _check_output(out: Path, inputs: list[Path]) -> None:
    if out.is_dir():
        raise DataError(f"{out} is a folder", "name a file with --out")
    if out.is_symlink() or (out.exists() and not out.is_file()):
        raise DataError(f"{out} is a link, or not a file", "choose another --out")
    refuse_model_file(out, "--out")
    if any(is_same_file(path, out) for path in inputs):
        raise DataError(f"{out} is both read and written", "choose another --out")
    if not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent}", "make it, or choose another --out")


def _validation_pairs(corpus: Corpus) -> Pairs:
    """Read all validation files, so that a problem is reported before anything is learned."""
    pairs = [pair for chunk in clean_lines(corpus) for pair in zip(chunk.sources, chunk.targets, strict=True)]
    if not pairs:
        raise DataError("the validation files have no pairs", "give others, or leave them out")
    return pairs[:_LINES]


def _measure(model: Path, direction: Direction, shortlist: Path, pairs: Pairs, console: Console) -> Cost:
    """Translate validation lines with a shortlist and without."""
    sources, references = [source for source, _ in pairs], [[target] for _, target in pairs]
    found = []
    for path, what in ((shortlist, "with the shortlist"), (None, "without it")):
        translator = Translator.load(
            model, shortlist=path, source_language=direction[0], target_language=direction[1]
        )
        translator(sources[0])  # the first call starts threads
        start = time.perf_counter()
        lines = [each.text for each in with_bar(translator.stream(sources), what, len(sources), console)]
        seconds = time.perf_counter() - start
        found.append((measure("bleu", lines, references).score, seconds))
    (bleu, seconds), (bleu_without, seconds_without) = found
    return Cost(len(sources), bleu, bleu_without, seconds, seconds_without)
