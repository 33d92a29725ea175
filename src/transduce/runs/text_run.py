"""Run folders on plain text: a language model, a model of masked text, a model of classes.

run.toml       the resolved configuration; written last, so that it stands for a prepared run
tokenizer.json, text/   what the text became
start/, checkpoints/, metrics.jsonl, best/, final/   as in every run
"""

import shutil
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from transduce import artifact
from transduce.config import BERTConfig, GPTConfig, RunConfig, write_toml
from transduce.data.blocks import Cutter
from transduce.data.plain_text import SIDE, prepare_text, read_texts
from transduce.data.prepared import Sequences
from transduce.data.rows import Rows
from transduce.data.tokenizer import JOINT, SOURCE, TARGET, SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import Kind, train_side_tokenizer
from transduce.data.wordpiece_training import train_wordpiece
from transduce.errors import DataError
from transduce.models.build import build
from transduce.models.protocol import Model
from transduce.runs.autotune import decide
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RunFolder
from transduce.runs.lock import alone_in
from transduce.runs.text_defaults import choose, choose_model
from transduce.training.objectives.language_model import LanguageModelObjective
from transduce.training.objectives.masked_language_model import MaskedLanguageModelObjective, find_mask_id
from transduce.training.objectives.objective import Objective


@dataclass(frozen=True)
class TextInputs:
    """The text, and how it is cut up."""

    train: Sequence[Path]
    valid: Sequence[Path] = ()
    tokenizer: Kind | Path = "bpe"  # a kind to train, or a ready-made tokenizer's file
    vocabulary: int = 8000
    packed: bool = True  # lines end to end, as one text; else each by itself
    max_length: int | None = None  # tokens at a time; the model's own if not given
    hold_out: float = 0.02
    cased: bool = True


class TextRun(RunFolder):
    """What the runs on text have in common."""

    inputs_made = frozenset({"text", "start", JOINT, SOURCE, TARGET})
    family: Literal["gpt", "bert"]

    @abstractmethod
    def objective(self, part: str, config: RunConfig, tokenizer: TokenizerPair) -> Objective[Any]:
        """The data of ``train`` or ``valid``."""

    @abstractmethod
    def train_tokenizer(self, inputs: TextInputs) -> SideTokenizer:
        """From the text."""

    @abstractmethod
    def write(self, inputs: TextInputs, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """The text as ids, into ``text/train`` and ``text/valid``."""

    def prepare(self, inputs: TextInputs, choices: UserChoices | None = None) -> None:
        """Write the text as ids, and decide all that was left open."""
        choices = choices or UserChoices()
        self.check_place()
        for path in (*inputs.train, *inputs.valid):  # one that cannot be used is better known now
            if next(read_texts([path]), None) is None:
                raise DataError(f"{path} holds no text", "give a file with lines that are not blank")
        choose_model(choices, self.family, 0, inputs.max_length)
        with alone_in(self.folder):
            self._prepare(inputs, choices)

    def _prepare(self, inputs: TextInputs, choices: UserChoices) -> None:
        shutil.rmtree(self.folder / "start", ignore_errors=True)  # of a preparation that was cut off
        tokenizer = artifact.load_tokenizer(choices.start) if choices.start else self._tokenizer(inputs)
        # Before the text is cut, only its size in bytes is known: some four to a token.
        tokens = sum(path.stat().st_size for path in inputs.train) // 4
        model = self.wished_model(choices, inputs, tokens)
        try:
            with self.console.status("cutting the text into tokens ..."):
                self.write(inputs, tokenizer, model)
            tokenizer.save(self.folder)
        except OSError as error:
            raise DataError(
                f"cannot write {self.folder}: {error.strerror}", "check the space and your rights"
            ) from error
        tokens = int(self.texts("train").lengths.sum())
        config = decide(
            lambda steps: choose(choices, model, tokens, steps),
            choices,
            lambda config: build(config.model, tokenizer.vocabulary, seed=config.training.seed),
            tokenizer,
            lambda config: self.objectives(config, tokenizer),
            self.team,
            self.console,
        )
        if choices.start:
            artifact.save(self.starting_model(choices.start, config), self.folder / "start", tokenizer)
        write_toml(config, self.folder / "run.toml")
        self.console.print(
            f"{tokens:,} tokens to train on, {int(self.texts('valid').lengths.sum()):,} to validate, "
            f"a vocabulary of {tokenizer.source.size:,}",
            highlight=False,
        )

    def wished_model(self, choices: UserChoices, inputs: TextInputs, tokens: int) -> GPTConfig | BERTConfig:
        """The architecture."""
        return choose_model(choices, self.family, tokens, inputs.max_length)

    def starting_model(self, start: Path, config: RunConfig) -> Model:
        """The model to go on from, with the dropouts of this run."""
        old = artifact.load(start).float()
        return artifact.assemble(config.model, old.vocabulary, dict(old.named_parameters()))

    def texts(self, part: str) -> Sequences:
        """The ids of ``train`` or ``valid``."""
        return Sequences(self.folder / "text" / part, SIDE)

    def open(self) -> tuple[RunConfig, Model, TokenizerPair, Objective[Any], Objective[Any]]:
        """Configuration, new model, tokenizer, training and validation data of a prepared run."""
        config, tokenizer = self.read_config(), TokenizerPair.load(self.folder)
        start = self.folder / "start"
        model = (
            artifact.load(start)
            if start.exists()
            else build(config.model, tokenizer.vocabulary, seed=config.training.seed)
        )
        return config, model, tokenizer, *self.objectives(config, tokenizer)

    def objectives(
        self, config: RunConfig, tokenizer: TokenizerPair
    ) -> tuple[Objective[Any], Objective[Any]]:
        """The data to train and to validate on."""
        return self.objective("train", config, tokenizer), self.objective("valid", config, tokenizer)

    def _tokenizer(self, inputs: TextInputs) -> TokenizerPair:
        if isinstance(inputs.tokenizer, Path):
            side = load_side_tokenizer(inputs.tokenizer)
        else:
            with self.console.status("learning the vocabulary ..."):
                side = self.train_tokenizer(inputs)
        return TokenizerPair(side, side)


class LanguageModelRun(TextRun):
    """A GPT that learns to go on with a text. A line begins with ``bos`` and ends with ``eos``."""

    command, family = "lm train", "gpt"

    def train_tokenizer(self, inputs: TextInputs) -> SideTokenizer:
        """See `TextRun`."""
        if isinstance(inputs.tokenizer, Path):
            raise TypeError("a ready-made tokenizer is not trained")
        return train_side_tokenizer(read_texts(inputs.train), kind=inputs.tokenizer, size=inputs.vocabulary)

    def write(self, inputs: TextInputs, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """See `TextRun`."""
        special = tokenizer.vocabulary
        # Where one token both begins and ends, in packed text it stands once between two lines.
        once = inputs.packed and special.bos == special.eos

        def encode(lines: list[str]) -> Rows:
            rows = tokenizer.target_rows(lines)
            return rows if once else rows.started(special.bos)

        prepare_text(
            self.folder / "text",
            encode,
            special.target,
            lambda: Cutter(model.max_length + 1, overlap=1, packed=inputs.packed),
            inputs.train,
            inputs.valid,
            hold_out=inputs.hold_out,
            begin=Rows.of([[special.bos]]) if once else None,
        )

    def objective(self, part: str, config: RunConfig, tokenizer: TokenizerPair) -> LanguageModelObjective:
        """See `TextRun`."""
        return LanguageModelObjective(self.texts(part), config.training)


class BertRun(TextRun):
    """A BERT with the heads that its task needs, whatever it starts from."""

    family = "bert"

    def starting_model(self, start: Path, config: RunConfig) -> Model:
        """All that the old model has and the new one needs; the rest is drawn from the seed."""
        old = artifact.load_as(start, "bert").float()
        new = build(config.model, old.vocabulary, seed=config.training.seed)
        known = dict(old.named_parameters())
        with torch.no_grad():
            for name, parameter in new.named_parameters():
                if name in known and known[name].shape == parameter.shape:
                    parameter.copy_(known[name])
        return new


class MaskedTextRun(BertRun):
    """A BERT that learns to guess what was masked."""

    command = "mlm train"

    def wished_model(self, choices: UserChoices, inputs: TextInputs, tokens: int) -> GPTConfig | BERTConfig:
        """A model with a head for masked tokens and no other."""
        model = super().wished_model(choices, inputs, tokens)
        return model.model_copy(update={"masked_head": True, "pooler": False, "classes": []})

    def train_tokenizer(self, inputs: TextInputs) -> SideTokenizer:
        """See `TextRun`."""
        if inputs.tokenizer != "wordpiece":
            raise DataError(
                f"a {inputs.tokenizer} tokenizer has no [MASK]", "choose wordpiece, or give a vocab.txt"
            )
        return train_wordpiece(read_texts(inputs.train), size=inputs.vocabulary, cased=inputs.cased)

    def write(self, inputs: TextInputs, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """See `TextRun`."""
        find_mask_id(tokenizer)
        prepare_text(
            self.folder / "text",
            tokenizer.source.plain.rows,
            tokenizer.source.size,
            lambda: Cutter(model.max_length - 2, packed=inputs.packed),  # [CLS] and [SEP] are to come
            inputs.train,
            inputs.valid,
            hold_out=inputs.hold_out,
        )

    def objective(
        self, part: str, config: RunConfig, tokenizer: TokenizerPair
    ) -> MaskedLanguageModelObjective:
        """See `TextRun`."""
        return MaskedLanguageModelObjective(self.texts(part), config.training, tokenizer)
