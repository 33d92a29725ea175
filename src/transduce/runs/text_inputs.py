"""Plain text for language models, masked language models and text classifiers, written as ids."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from rich.console import Console

from transduce import artifact
from transduce.config import PRESETS, BERTConfig, GPTConfig, validate
from transduce.data.blocks import Cutter
from transduce.data.chunks import RawPair, usable
from transduce.data.normalization import DEFAULT, Normalization
from transduce.data.pair_files import Tsv
from transduce.data.plain_text import PARTS, PlainText, read_texts
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Pairs, PairWriter, Sequences
from transduce.data.rows import Rows
from transduce.data.text_files import require_files
from transduce.data.text_pairs import encode_lines
from transduce.data.tokenizer import SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import Kind, train_side_tokenizer
from transduce.data.wordpiece_training import train_wordpiece
from transduce.errors import ConfigError, DataError
from transduce.runs.defaults import SMALL_TEXT, TrainingDefaults, UserChoices, text_defaults
from transduce.runs.inputs import VOCABULARY, File, Files, kind_or_file, paths_of, refuse_together
from transduce.runs.task import LANGUAGE_MODEL, MASKED_LANGUAGE_MODEL, TEXT_CLASSES, Task
from transduce.training.objectives.masked_language_model import find_mask_id

BYTES_PER_TOKEN = 4  # about; the size of the text in tokens is not known before it is tokenized


@dataclass
class TextInputs(ABC):
    """The text files of a run, and how they are tokenized: what all kinds of runs on text have in common."""

    task: ClassVar[Task]
    family: ClassVar[Literal["gpt", "bert"]]
    tokenizer_kind: ClassVar[Kind]
    file_option: ClassVar[str] = "--text"

    text: Files = None
    valid: Files = None
    tokenizer: File | None = None  # a kind to train, or the file of an existing tokenizer
    vocabulary: int | None = None
    normalize: Normalization = DEFAULT
    packed: bool = True  # join all lines into one text; otherwise each line is a text of its own
    max_length: int | None = None  # tokens; the model's own if not given
    hold_out: float = 0.02
    cased: bool = False

    @abstractmethod
    def train_tokenizer(self, kind: Kind) -> SideTokenizer:
        """Train a tokenizer on the training text."""

    @abstractmethod
    def write_ids(self, folder: Path, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """Tokenize the text and write ``folder/train`` and ``folder/valid``."""

    @cached_property
    def train_paths(self) -> list[Path]:
        """The training files."""
        return paths_of(self.text)

    @cached_property
    def valid_paths(self) -> list[Path]:
        """The validation files, if there are any."""
        return paths_of(self.valid)

    def plain_text(self, form: Normalization | None = None) -> PlainText:
        """Return the text of the files; ``form`` is the Unicode normalization of the tokenizer."""
        return PlainText(self.train_paths, self.valid_paths, self.packed, self.hold_out, form or DEFAULT)

    def check(self, choices: UserChoices, console: Console) -> None:
        """Check the options, and that every file has text in it."""
        if not self.train_paths:
            raise DataError("no training files were given", f"use {self.file_option} FILE")
        training = {
            "vocabulary": self.vocabulary,
            "cased": self.cased,
            "normalize": None if self.normalize == DEFAULT else self.normalize,
        }
        if choices.from_model:
            refuse_together("--from", {"tokenizer": self.tokenizer, **training})
        elif isinstance(kind_or_file(self.tokenizer, self.tokenizer_kind), Path):
            refuse_together("the file of an existing tokenizer", training)
        require_files((*self.train_paths, *self.valid_paths))
        for path in (*self.train_paths, *self.valid_paths):
            if next(read_texts([path]), None) is None:
                raise DataError(f"{path} contains no text", "give a file with lines that are not blank")
        self.architecture(choices)

    def make_tokenizer(self, choices: UserChoices, console: Console) -> TokenizerPair:
        """Train a tokenizer, or read an existing one."""
        if choices.from_model:
            return artifact.load_tokenizer(choices.from_model)
        kind = kind_or_file(self.tokenizer, self.tokenizer_kind)
        if isinstance(kind, Path):
            side = load_side_tokenizer(kind)
        else:
            with console.status("training the tokenizer ..."):
                side = self.train_tokenizer(kind)
        return TokenizerPair(side, side)

    def write(
        self, folder: Path, tokenizer: TokenizerPair | None, choices: UserChoices, console: Console
    ) -> None:
        """Tokenize the text and write it as ids."""
        if tokenizer is None:
            raise TypeError("text needs a tokenizer")
        with console.status("tokenizing ..."):
            self.write_ids(folder, tokenizer, self.architecture(choices))

    def choose_model(
        self, choices: UserChoices, data: Pairs | Sequences, tokenizer: TokenizerPair | None
    ) -> GPTConfig | BERTConfig:
        """Return the chosen model, or one whose size suits the size of the files."""
        return self.architecture(choices)

    def architecture(self, choices: UserChoices) -> GPTConfig | BERTConfig:
        """Return the chosen model, or one whose size suits the size of the files."""
        tokens = sum(path.stat().st_size for path in self.train_paths) // BYTES_PER_TOKEN
        name = f"{self.family}-small" if tokens <= SMALL_TEXT else self.family
        model = choices.model() or PRESETS[name].model
        if not isinstance(model, GPTConfig | BERTConfig) or model.family != self.family:
            command = f"transduce {self.task.command}"
            raise ConfigError(
                f"{command} trains models of family {self.family!r}, not {model.family!r}",
                f"choose a preset such as {self.family}-small, or a model of that family",
            )
        model = choices.adjust(model)
        if self.max_length and choices.from_model and self.max_length != model.max_length:
            raise ConfigError(
                f"--max-length is {self.max_length}, but the model to start from has {model.max_length}",
                "leave --max-length out",
            )
        if not self.max_length:
            return model
        table = {**model.model_dump(), "max_length": self.max_length}
        return validate(type(model), table, where="max_length (--max-length)")

    def training_defaults(self, choices: UserChoices, data: Pairs | Sequences) -> TrainingDefaults:
        """Return the training settings for this amount of text."""
        return text_defaults(choices, _count_tokens(data))

    def summary(
        self, train: Pairs | Sequences, valid: Pairs | Sequences, tokenizer: TokenizerPair | None
    ) -> str:
        """Return the numbers of tokens and the size of the vocabulary."""
        size = tokenizer.source.size if tokenizer else 0
        return (
            f"{_count_tokens(train):,} training tokens, {_count_tokens(valid):,} validation tokens, "
            f"a vocabulary of {size:,} tokens"
        )


def _count_tokens(data: Pairs | Sequences) -> int:
    texts = data.source if isinstance(data, Pairs) else data
    return int(texts.lengths.sum())


@dataclass
class LanguageModelInputs(TextInputs):
    """Text that a GPT learns to continue. Every line begins with ``bos`` and ends with ``eos``."""

    task, family, tokenizer_kind = LANGUAGE_MODEL, "gpt", "bpe"

    def train_tokenizer(self, kind: Kind) -> SideTokenizer:
        """Train a tokenizer of any kind."""
        return train_side_tokenizer(
            read_texts(self.train_paths),
            kind=kind,
            size=self.vocabulary or VOCABULARY,
            normalize=self.normalize,
        )

    def write_ids(self, folder: Path, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """Write blocks of the model's context size; neighbours overlap by one token."""
        special = tokenizer.vocabulary
        # If one token is both bos and eos, packed text has it once between two lines.
        single = self.packed and special.bos == special.eos
        cutter = Cutter(model.max_length + 1, overlap=1, packed=self.packed)
        text = self.plain_text(tokenizer.target.normalization)
        for part in PARTS:
            rows: Iterator[Rows] = map(tokenizer.target_rows, text.chunks(part))
            if single:
                rows = chain([Rows.of([[special.bos]])], rows)
            else:
                rows = (chunk.started(special.bos) for chunk in rows)
            text.write(folder, part, rows, cutter, special.target)


@dataclass
class MaskedTextInputs(TextInputs):
    """Text in which a BERT learns to predict masked tokens."""

    task, family, tokenizer_kind = MASKED_LANGUAGE_MODEL, "bert", "wordpiece"

    packed: bool = False

    def train_tokenizer(self, kind: Kind) -> SideTokenizer:
        """Train a WordPiece tokenizer as BERT's, the only kind with a ``[MASK]`` token."""
        if kind != "wordpiece":
            raise DataError(
                f"a tokenizer of kind {kind} has no [MASK] token", "use wordpiece, or the path of a vocab.txt"
            )
        size = self.vocabulary or VOCABULARY
        return train_wordpiece(read_texts(self.train_paths), size=size, cased=self.cased)

    def architecture(self, choices: UserChoices) -> BERTConfig:
        """Return a model with a head for masked tokens and no other."""
        model = super().architecture(choices)
        return _with_heads(model, masked_head=True, pooler=False, classes=[])

    def write_ids(self, folder: Path, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """Write blocks of the model's length, without ``[CLS]`` and ``[SEP]``."""
        find_mask_id(tokenizer)
        cutter, text = Cutter(model.max_length - 2, packed=self.packed), self.plain_text()
        for part in PARTS:
            rows = map(tokenizer.source.plain.rows, text.chunks(part))
            text.write(folder, part, rows, cutter, tokenizer.source.size)


@dataclass
class LabelledTextInputs(TextInputs):
    """Tab-separated lines of a text, or two texts, and a class, which a fine-tuned BERT learns to predict."""

    task, family, tokenizer_kind = TEXT_CLASSES, "bert", "wordpiece"
    file_option = "--pairs"

    hold_out: float = 0.1

    def check(self, choices: UserChoices, console: Console) -> None:
        """Check the options, the files, and that there are at least two classes."""
        if choices.from_model is None:
            raise ConfigError("there is no model to fine-tune", "use --from MODEL")
        super().check(choices, console)

    def train_tokenizer(self, kind: Kind) -> SideTokenizer:
        """Refuse: the tokenizer is that of the model to fine-tune."""
        raise ConfigError("there is no model to fine-tune", "use --from MODEL")

    @cached_property
    def classes(self) -> list[str]:
        """The classes in the training files, sorted."""
        return sorted({label for _, label in labelled_lines(self.train_paths)})

    def architecture(self, choices: UserChoices) -> BERTConfig:
        """Return the model to fine-tune, with a classifier instead of its head for masked tokens."""
        model = super().architecture(choices)
        if len(self.classes) < 2:
            files = " and ".join(map(str, self.train_paths))
            raise DataError(f"{files} has {len(self.classes)} class", "give examples of at least two classes")
        return _with_heads(model, masked_head=False, pooler=True, classes=self.classes)

    def write_ids(self, folder: Path, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """Write texts and the numbers of their classes; texts that are too long are truncated."""
        if not isinstance(model, BERTConfig):
            raise TypeError(f"texts are classified by a bert, not a {model.family}")
        numbers = {name: number for number, name in enumerate(model.classes)}
        sizes, eos = (tokenizer.source.size, len(numbers)), tokenizer.vocabulary.eos
        with PairWriter(folder / "train", *sizes) as train, PairWriter(folder / "valid", *sizes) as valid:
            for paths, writer in ((self.train_paths, train), (self.valid_paths, valid)):
                for text, label in labelled_lines(paths):
                    if label not in numbers:
                        raise DataError(
                            f"the validation data have a class {label!r} that is not in the training data",
                            "remove its examples, or add some to the training data",
                        )
                    held_out = writer is train and not self.valid_paths and is_held_out(text, self.hold_out)
                    rows = encode_lines([text], tokenizer.source, eos, model).rows
                    (valid if held_out else writer).write(rows, [[numbers[label]]])
        for part, name in (("train", "training"), ("valid", "validation")):
            if not len(Pairs.open(folder / part)):
                raise DataError(
                    f"no text is left for {name}", "give more text, a file for --valid, or another --hold-out"
                )


def _with_heads(
    model: GPTConfig | BERTConfig, *, masked_head: bool, pooler: bool, classes: list[str]
) -> BERTConfig:
    if not isinstance(model, BERTConfig):
        raise TypeError(f"only a bert has these heads, not a {model.family}")
    return model.model_copy(update={"masked_head": masked_head, "pooler": pooler, "classes": classes})


def labelled_lines(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Give texts, or two of them with a tab in between, and their classes."""
    for path in paths:
        for chunk in _LabelledFile(path).chunks():
            lines = usable(chunk)
            yield from zip(lines.sources, (label.strip() for label in lines.targets), strict=True)


class _LabelledFile(Tsv):
    """A TSV file whose last column is the target, and all columns before it the source."""

    def pair(self, text: bytes, line: int) -> RawPair:
        """Split one line."""
        texts, tab, label = text.rpartition(b"\t")
        return RawPair(texts, label, line) if tab else super().pair(text, line)
