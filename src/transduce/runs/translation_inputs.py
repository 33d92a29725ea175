"""Pairs of texts for a translation run: checked, tokenized and written as ids."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from rich.console import Console

from transduce import artifact
from transduce.config import ModelConfig
from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.doctor_report import print_report
from transduce.data.factors import FactorVocabulary
from transduce.data.language_tags import (
    check_code,
    directions_for_validation,
    directions_of,
    with_defaults,
    with_languages,
)
from transduce.data.normalization import DEFAULT, Normalization
from transduce.data.prepare import clean_lines, factor_vocabularies, prepare
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import Kind, train_side_tokenizer
from transduce.errors import ConfigError, DataError
from transduce.runs.defaults import (
    TrainingDefaults,
    UserChoices,
    choose_translation_model,
    not_for_pairs,
    translation_defaults,
)
from transduce.runs.inputs import VOCABULARY, File, Files, kind_or_file, paths_of, refuse_together
from transduce.runs.new_tokens import adapt_tokenizer
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
    source_factors: Files = None  # a file for each factor, with a value for each word of the source
    valid_source_factors: Files = None
    # Codes of languages: none, one for all training files, or one for each in the order of the corpus' parts
    source_language: str | Sequence[str] | None = None
    target_language: str | Sequence[str] | None = None
    tokenizer: File | None = None  # a kind to train, or the file of an existing tokenizer
    source_tokenizer: File | None = None  # instead of `tokenizer`, for one side
    target_tokenizer: File | None = None
    normalize: Normalization = DEFAULT
    vocabulary: int | None = None
    separate: bool = False
    extend_vocabulary: bool = False  # of the model to fine-tune, by characters that it does not know
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
        corpus = Corpus.of(*files, "training", paths_of(self.source_factors), weighted=True)
        if corpus is None:
            raise DataError(
                "no training files were given", "use --source FILE --target FILE, or --pairs FILE"
            )
        languages = _codes(self.source_language), _codes(self.target_language)
        return replace(corpus, directions=directions_of(*languages, len(corpus.parts)))

    @cached_property
    def valid(self) -> Corpus | None:
        """The validation corpus, if there is one."""
        files = paths_of(self.valid_source), paths_of(self.valid_target), paths_of(self.valid_pairs)
        factors = paths_of(self.valid_source_factors)
        expected = len(paths_of(self.source_factors)) if any(files) else 0
        if len(factors) != expected:
            raise DataError(
                f"{len(factors)} files of source factors were given for validation, not {expected}",
                "give --valid-source-factor for each --source-factor if there are validation files",
            )
        corpus = Corpus.of(*files, "validation", factors)
        if corpus is None:
            return None
        directions = directions_for_validation(self.train.directions, len(corpus.parts))
        return replace(corpus, directions=directions)

    @cached_property
    def factors(self) -> tuple[FactorVocabulary, ...]:
        """The vocabulary of each source factor in the training corpus."""
        return factor_vocabularies(self.train) if self.source_factors else ()

    def check(self, choices: UserChoices, console: Console) -> None:
        """Check the options and the text; print a table of the problems in it."""
        train, valid = self.train, self.valid
        self._check_tokenizer_options(choices)
        if self.extend_vocabulary and choices.training().get("adapter_rank"):
            raise ConfigError(
                "--extend-vocabulary cannot be combined with --adapter, which cannot hold new tokens",
                "leave one of them out",
            )
        self._length_limit(choices)
        self._check_languages(choices)
        self._check_factors(choices, console)
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

    def _check_factors(self, choices: UserChoices, console: Console) -> None:
        """Read the files of source factors, and check them and the settings that depend on them."""
        wanted = choose_translation_model(choices, 0, joint=True).source_factors
        if choices.from_model and len(wanted) != len(paths_of(self.source_factors)):
            raise ConfigError(
                f"number of source factors of the model in {choices.from_model}: {len(wanted)}",
                "give as many --source-factor files",
            )
        if self.source_factors and choices.training().get("bpe_dropout"):
            raise ConfigError(
                "training.bpe_dropout cannot be combined with source factors", "leave out one of them"
            )
        with console.status("reading the source factors ...") if self.source_factors else nullcontext():
            sizes = [len(vocabulary) for vocabulary in self.factors]
            if self.valid and self.valid.factors:
                factor_vocabularies(self.valid)
        if not choices.from_model and wanted not in ([], sizes):
            raise ConfigError(
                f"model.source_factors is {wanted}, but the --source-factor files have {sizes} values",
                "leave the setting out: the files decide",
            )

    def _check_languages(self, choices: UserChoices) -> None:
        """Refuse languages that the model to fine-tune does not have, and the lack of those that it needs.

        A model of one direction can learn another one instead. An adapter keeps the languages of its model.
        """
        directions = self.train.directions
        if choices.from_model:
            tokenizer = artifact.load_tokenizer(choices.from_model)
            is_fixed = tokenizer.has_language_tokens or choices.training().get("adapter_rank")
            if is_fixed or not directions:
                for direction in directions or ((None, None),):
                    tokenizer.for_languages(*direction).check_languages()
                return
            if len(set(directions)) > 1:
                raise ConfigError(
                    f"the model in {choices.from_model} has one direction, but the files have several",
                    "train a new model, or give --source-lang and --target-lang once",
                )
        for direction in directions:
            for code in direction:
                if code is not None:
                    check_code(code)
            if direction[1] is None:
                raise ConfigError("--source-lang was given without --target-lang", "add --target-lang CODE")

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
            return
        if self.extend_vocabulary:
            raise ConfigError(
                "--extend-vocabulary has no effect without --from", "add --from MODEL, or leave it out"
            )
        if all(isinstance(kind, Path) for kind in self._kinds()):
            refuse_together("the file of an existing tokenizer", training)

    def _kinds(self) -> tuple[Kind | Path, Kind | Path]:
        """Return the kind or the file of the source and of the target tokenizer."""
        return (
            kind_or_file(self.source_tokenizer or self.tokenizer, "bpe"),
            kind_or_file(self.target_tokenizer or self.tokenizer, "bpe"),
        )

    def make_tokenizer(self, choices: UserChoices, console: Console) -> TokenizerPair:
        """Train a tokenizer for both sides or one for each, or read existing ones.

        That of a model to fine-tune may be extended.
        """
        if choices.from_model:
            known = with_defaults(artifact.load_tokenizer(choices.from_model), self.train.directions)
            return adapt_tokenizer(known, self.train, console, extend=self.extend_vocabulary)
        return with_languages(self._new_tokenizer(console), self.train.directions)

    def _new_tokenizer(self, console: Console) -> TokenizerPair:
        source, target = self._kinds()
        with console.status("training the tokenizer ..."):
            if source == target and (isinstance(source, Path) or not self.separate):
                side = self._make_side(source, self._lines())
                return TokenizerPair(side, side, self.factors)
            return TokenizerPair(
                self._make_side(
                    source, (text for chunk in clean_lines(self.train) for text in chunk.sources)
                ),
                self._make_side(
                    target, (text for chunk in clean_lines(self.train) for text in chunk.targets)
                ),
                self.factors,
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
        model = choose_translation_model(choices, len(data), joint=tokenizer is None or tokenizer.joint)
        factors = [len(vocabulary) for vocabulary in tokenizer.factors] if tokenizer else []
        return model.model_copy(update={"source_factors": factors})

    def training_defaults(self, choices: UserChoices, data: Pairs) -> TrainingDefaults:
        """Return the training settings for these pairs."""
        return translation_defaults(choices, data, is_extended=self.extend_vocabulary)

    def summary(self, train: Pairs, valid: Pairs, tokenizer: TokenizerPair | None) -> str:
        """Return the numbers of pairs and the size of the vocabulary."""
        weights = f" ({train.mixture} per epoch)" if train.mixture else ""
        pairs = f"{len(train):,} training pairs{weights}, {len(valid):,} validation pairs"
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


def _codes(languages: str | Sequence[str] | None) -> list[str]:
    return [languages] if isinstance(languages, str) else list(languages or ())
