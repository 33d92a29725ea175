"""Pairs of texts for a translation run: checked, tokenized and written as ids."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rich.console import Console

from transduce.config import ModelConfig
from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.doctor_report import print_report
from transduce.data.normalization import DEFAULT, Normalization
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import Kind, train_side_tokenizer
from transduce.errors import DataError
from transduce.runs.defaults import (
    TrainingDefaults,
    UserChoices,
    choose_translation_model,
    not_for_pairs,
    translation_defaults,
)
from transduce.runs.inputs import VOCABULARY, File, Files, kind_or_file, paths_of, refuse_together
from transduce.runs.task import TRANSLATION, Task
from transduce.terminal import print_line

MAX_LENGTH = 512  # tokens; longer pairs are left out


@dataclass
class TranslationInputs:
    """The text files of a translation run, and how they are tokenized."""

    source: Files = None
    target: Files = None
    pairs: Files = None  # files with both sides: .tsv, .jsonl
    valid_source: Files = None
    valid_target: Files = None
    valid_pairs: Files = None
    tokenizer: File | None = None  # a kind to train, or the file of an existing tokenizer
    source_tokenizer: File | None = None  # instead of `tokenizer`, for one side
    target_tokenizer: File | None = None
    normalize: Normalization = DEFAULT
    vocabulary: int | None = None
    separate: bool = False
    hold_out: float = 0.02
    max_length: int = MAX_LENGTH
    strict: bool = False
    check_text: bool = True  # look for problems first
    _pair_count: int | None = field(default=None, init=False)  # known once the text has been checked

    @property
    def task(self) -> Task:
        """Translation."""
        return TRANSLATION

    @cached_property
    def train(self) -> Corpus:
        """The training corpus."""
        files = paths_of(self.source), paths_of(self.target), paths_of(self.pairs)
        corpus = Corpus.of(*files, "training")
        if corpus is None:
            raise DataError(
                "no training files were given", "use --source FILE --target FILE, or --pairs FILE"
            )
        return corpus

    @cached_property
    def valid(self) -> Corpus | None:
        """The validation corpus, if there is one."""
        files = paths_of(self.valid_source), paths_of(self.valid_target), paths_of(self.valid_pairs)
        return Corpus.of(*files, "validation")

    def check(self, choices: UserChoices, console: Console) -> None:
        """Check the options and the text; print a table of the problems in it."""
        train, valid = self.train, self.valid
        self._check_tokenizer_options(choices)
        self._length_limit(choices)
        if not self.check_text:
            return
        with console.status("checking the text ..."):
            report = Doctor(self.normalize).examine(train, {"validation": valid} if valid else {})
        self._pair_count = report.pairs
        if not report.findings:
            return
        print_report(report, console)
        fatal = [finding.problem for finding in report.fatal]
        if fatal or self.strict:
            reason = f": {fatal[0]}" if fatal else ""
            raise DataError(f"the text cannot be used for training{reason}", "fix the problems listed above")

    def _check_tokenizer_options(self, choices: UserChoices) -> None:
        """Refuse options about a vocabulary that is not trained."""
        training = {
            "vocabulary": self.vocabulary,
            "separate": self.separate,
            "normalize": None if self.normalize == DEFAULT else self.normalize,
        }
        if choices.from_model:
            kinds = {
                "tokenizer": self.tokenizer,
                "source-tokenizer": self.source_tokenizer,
                "target-tokenizer": self.target_tokenizer,
            }
            refuse_together("--from", {**kinds, **training})
        elif all(isinstance(kind, Path) for kind in self._kinds()):
            refuse_together("the file of an existing tokenizer", training)

    def _kinds(self) -> tuple[Kind | Path, Kind | Path]:
        """Return the kind or the file of the source and of the target tokenizer."""
        return (
            kind_or_file(self.source_tokenizer or self.tokenizer, "bpe"),
            kind_or_file(self.target_tokenizer or self.tokenizer, "bpe"),
        )

    def make_tokenizer(self, choices: UserChoices, console: Console) -> TokenizerPair:
        """Train a tokenizer for both sides or one for each, or read existing ones."""
        source, target = self._kinds()
        with console.status("training the tokenizer ..."):
            if source == target and (isinstance(source, Path) or not self.separate):
                side = self._make_side(source, self._lines())
                return TokenizerPair(side, side)
            return TokenizerPair(
                self._make_side(
                    source, (text for chunk in clean_lines(self.train) for text in chunk.sources)
                ),
                self._make_side(
                    target, (text for chunk in clean_lines(self.train) for text in chunk.targets)
                ),
            )

    def _make_side(self, kind: Kind | Path, lines: Iterator[str]) -> SideTokenizer:
        if isinstance(kind, Path):
            return load_side_tokenizer(kind)
        size = self.vocabulary or VOCABULARY
        return train_side_tokenizer(lines, kind=kind, size=size, normalize=self.normalize)

    def _lines(self) -> Iterator[str]:
        """Give the lines of both sides, in one pass over the files."""
        for chunk in clean_lines(self.train):
            yield from chunk.sources
            yield from chunk.targets

    def write(
        self, folder: Path, tokenizer: TokenizerPair | None, choices: UserChoices, console: Console
    ) -> None:
        """Tokenize all pairs and write them as ids."""
        if tokenizer is None:
            raise TypeError("pairs of texts need a tokenizer")
        limit = self._length_limit(choices)
        prepared = prepare(
            folder,
            tokenizer,
            self.train,
            self.valid,
            hold_out=self.hold_out,
            max_length=limit,
            pairs=self._pair_count,
            console=console,
        )
        if prepared.too_long:
            problem = f"{prepared.too_long:,} pairs are longer than {limit} tokens"
            if self.strict:
                raise DataError(problem, "remove them, or raise --max-length")
            print_line(console, f"{problem} and are left out")

    def choose_model(self, choices: UserChoices, data: Pairs, tokenizer: TokenizerPair | None) -> ModelConfig:
        """Return the chosen model, or one whose size suits the number of pairs."""
        return choose_translation_model(choices, len(data), joint=tokenizer is None or tokenizer.joint)

    def training_defaults(self, choices: UserChoices, data: Pairs) -> TrainingDefaults:
        """Return the training settings for these pairs."""
        return translation_defaults(choices, data)

    def summary(self, train: Pairs, valid: Pairs, tokenizer: TokenizerPair | None) -> str:
        """Return the numbers of pairs and the size of the vocabulary."""
        pairs = f"{len(train):,} training pairs, {len(valid):,} validation pairs"
        if tokenizer is None:
            return pairs
        sizes = tokenizer.vocabulary
        if tokenizer.joint:
            return f"{pairs}, a joint vocabulary of {sizes.target:,} tokens"
        return f"{pairs}, vocabularies of {sizes.source:,} source and {sizes.target:,} target tokens"

    def _length_limit(self, choices: UserChoices) -> int:
        """Return the longest text, in tokens, that both the options and the model allow."""
        if choices.family not in (None, "transformer", "rnn"):
            raise not_for_pairs(choices.family)
        limit = choose_translation_model(choices, 0, joint=True).length_limit
        return min(self.max_length, limit or self.max_length)
