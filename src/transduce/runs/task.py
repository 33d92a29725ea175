"""The kinds of runs: one record for each, and `task_for`, which finds the record of a model."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from transduce.config import BERTConfig, GPTConfig, ModelConfig, RNNConfig, RunConfig, TransformerConfig
from transduce.data.images import Images
from transduce.data.plain_text import SIDE
from transduce.data.prepared import RESTORE, Pairs, Sequences
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.training.objectives.image_classes import ImageClassesObjective
from transduce.training.objectives.language_model import LanguageModelObjective
from transduce.training.objectives.masked_language_model import MaskedLanguageModelObjective
from transduce.training.objectives.objective import Objective
from transduce.training.objectives.text_classes import TextClassesObjective
from transduce.training.objectives.translation import TranslationObjective

Data: TypeAlias = Pairs | Sequences | Images


@dataclass(frozen=True)
class Words:
    """The words for a task's data, on screen and in reports."""

    example: str  # what the model is trained on
    unit: str  # what is predicted and counted
    perplexity: bool  # whether perplexity is a customary figure for this loss


@dataclass(frozen=True)
class CardText:
    """The sentences of a model card that depend on the kind of run."""

    tag: str  # the task's name on the Hugging Face hub
    usage: str  # Markdown; {place} stands for the model folder
    counted: str  # what the trainer counts: "target tokens seen"
    measured: str  # how the validation figures were computed; follows "held-out pairs"


@dataclass(frozen=True)
class Task:
    """A kind of run: its command, its data, its objective, its words on screen and in model cards."""

    command: str  # without the program: "lm train"
    data_folder: str  # inside the run folder; holds train/ and valid/
    words: Words
    card: CardText
    networks: dict[str, str]  # by model family: what the model is; {config} stands for its configuration
    open_data: Callable[[Path], Data]
    make_objective: Callable[[Any, RunConfig, TokenizerPair | None], Objective[Any]]
    has_tokenizer: bool = True
    can_translate: bool = False

    def describe(self, model: ModelConfig) -> str:
        """Return a sentence that says what a model of this configuration is."""
        return self.networks[model.family].format(config=model)

    def data_at(self, run_folder: Path, part: str) -> Path:
        """Return the folder of the prepared data ``train`` or ``valid``."""
        return run_folder / self.data_folder / part

    def open_objective(
        self, run_folder: Path, part: str, config: RunConfig, tokenizer: TokenizerPair | None
    ) -> Objective[Any]:
        """Return the objective on the prepared data ``train`` or ``valid``."""
        return self.make_objective(self.open_data(self.data_at(run_folder, part)), config, tokenizer)


def _translation(data: Pairs, config: RunConfig, tokenizer: TokenizerPair | None) -> Objective[Any]:
    if tokenizer is None or not isinstance(config.model, TransformerConfig | RNNConfig):
        raise TypeError("a model that translates needs a tokenizer")
    lengths = range(1, 1 + (config.model.length_limit or sys.maxsize - 1))
    data.source.check(tokenizer.vocabulary.source, lengths)
    data.target.check(tokenizer.vocabulary.target, lengths)
    for factor, vocabulary in zip_longest(data.factors, tokenizer.factors):
        if factor is None or vocabulary is None:
            raise DataError(
                f"{data.source.path.parent} is damaged: source factors: {len(data.factors)} in the data, "
                f"{len(tokenizer.factors)} in the tokenizer",
                RESTORE,
            )
        factor.check(len(vocabulary), lengths)
    return TranslationObjective(data, config.training, tokenizer)


def _language_model(data: Sequences, config: RunConfig, tokenizer: TokenizerPair | None) -> Objective[Any]:
    _check_texts(data, config, tokenizer, shortest=2, more=1)
    return LanguageModelObjective(data, config.training)


def _masked_tokens(data: Sequences, config: RunConfig, tokenizer: TokenizerPair | None) -> Objective[Any]:
    if tokenizer is None:
        raise TypeError("masked language models need a tokenizer")
    _check_texts(data, config, tokenizer, shortest=1, more=-2)
    return MaskedLanguageModelObjective(data, config.training, tokenizer)


def _text_classes(data: Pairs, config: RunConfig, tokenizer: TokenizerPair | None) -> Objective[Any]:
    if not isinstance(config.model, BERTConfig):
        raise TypeError(f"texts are classified by a bert, not a {config.model.family}")
    _check_texts(data.source, config, tokenizer, shortest=0, more=-2)
    data.target.check(len(config.model.classes), range(1, 2))
    return TextClassesObjective(data, config.training)


def _image_classes(data: Images, config: RunConfig, tokenizer: TokenizerPair | None) -> Objective[Any]:
    if config.model.family != "vit":
        raise TypeError(f"images are classified by a vit, not a {config.model.family}")
    expected = (*config.model.size, config.model.channels)
    if data.pixels.shape[1:] != expected or len(data.classes) != len(config.model.class_names):
        raise DataError(
            f"the prepared images are {data.pixels.shape[1:]} with {len(data.classes)} classes, but run.toml "
            f"says {expected} with {len(config.model.class_names)}",
            "restore the data and run.toml, or start a new run in another folder",
        )
    rows, columns = config.model.grid
    return ImageClassesObjective(data, config.training, rows * columns)


def _check_texts(
    texts: Sequences, config: RunConfig, tokenizer: TokenizerPair | None, *, shortest: int, more: int
) -> None:
    """Check texts of at least ``shortest`` ids, and at most as many as the model reads plus ``more``."""
    if tokenizer is None or not isinstance(config.model, GPTConfig | BERTConfig):
        raise TypeError("a language model needs a tokenizer")
    texts.check(tokenizer.vocabulary.target, range(shortest, config.model.max_length + more + 1))


def _open_texts(folder: Path) -> Sequences:
    return Sequences(folder, SIDE)


_TEACHER_FORCED = ", token by token, each predicted from the correct tokens before it."


def _usage(code: str, command: str) -> str:
    return f"```python\nimport transduce\n\n{code}\n```\n\n```shell\n{command}\n```"


TRANSLATION = Task(
    command="train",
    data_folder="data",
    words=Words("pair", "token", perplexity=True),
    card=CardText(
        tag="translation",
        usage=_usage(
            'translator = transduce.Translator.load("{place}")  # the folder of this card\n'
            'print(translator("A man sleeps.").text)',
            "transduce translate {place} --input source.txt",
        ),
        counted="target tokens seen",
        measured=_TEACHER_FORCED,
    ),
    networks={
        "transformer": 'A Transformer, as in "Attention Is All You Need", that translates text.',
        "rnn": "A recurrent sequence-to-sequence network (cell: {config.cell}, attention: "
        "{config.attention}) that translates text.",
    },
    open_data=Pairs.open,
    make_objective=_translation,
    can_translate=True,
)

LANGUAGE_MODEL = Task(
    command="lm train",
    data_folder="text",
    words=Words("text", "token", perplexity=True),
    card=CardText(
        tag="text-generation",
        usage=_usage(
            'generator = transduce.TextGenerator.load("{place}")  # the folder of this card\n'
            'print(generator("Once upon a time")[0].text)',
            'transduce lm generate {place} --prompt "Once upon a time"',
        ),
        counted="tokens predicted",
        measured=_TEACHER_FORCED,
    ),
    networks={"gpt": "A language model that continues a text: a decoder-only Transformer, as GPT-2."},
    open_data=_open_texts,
    make_objective=_language_model,
)

MASKED_LANGUAGE_MODEL = Task(
    command="mlm train",
    data_folder="text",
    words=Words("text", "token", perplexity=True),
    card=CardText(
        tag="fill-mask",
        usage=_usage(
            'model = transduce.MaskedTextModel.load("{place}")  # the folder of this card\n'
            'print(model.fill("The [MASK] sat.")[0][0].text)',
            'transduce mlm fill {place} "The [MASK] sat."',
        ),
        counted="tokens predicted",
        measured=", at the masked positions.",
    ),
    networks={
        "bert": "A masked language model that fills gaps in a text: an encoder-only Transformer, as BERT."
    },
    open_data=_open_texts,
    make_objective=_masked_tokens,
)

TEXT_CLASSES = Task(
    command="mlm finetune",
    data_folder="text",
    words=Words("text", "text", perplexity=False),
    card=CardText(
        tag="text-classification",
        usage=_usage(
            'model = transduce.MaskedTextModel.load("{place}")  # the folder of this card\n'
            'print(model.classify("A text to classify."))',
            "transduce mlm classify {place} --input texts.txt",
        ),
        counted="texts seen",
        measured=".",
    ),
    networks={"bert": "A text classifier: an encoder-only Transformer, as BERT."},
    open_data=Pairs.open,
    make_objective=_text_classes,
)

IMAGE_CLASSES = Task(
    command="vision train",
    data_folder="data",
    words=Words("image", "image", perplexity=False),
    card=CardText(
        tag="image-classification",
        usage=_usage(
            'classifier = transduce.ImageClassifier.load("{place}")  # the folder of this card\n'
            'print(classifier("image.png").label)',
            "transduce vision classify {place} image.png",
        ),
        counted="images seen",
        measured=".",
    ),
    networks={"vit": "An image classifier: a Vision Transformer."},
    open_data=Images.open,
    make_objective=_image_classes,
    has_tokenizer=False,
)

_BY_FAMILY = {
    "transformer": TRANSLATION,
    "rnn": TRANSLATION,
    "gpt": LANGUAGE_MODEL,
    "vit": IMAGE_CLASSES,
}


def task_for(model: ModelConfig) -> Task:
    """Return the kind of run that trains models of this configuration."""
    if model.family == "bert":
        return MASKED_LANGUAGE_MODEL if model.masked_head else TEXT_CLASSES
    return _BY_FAMILY[model.family]
