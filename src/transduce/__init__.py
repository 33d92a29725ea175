"""Transduce: train, use and understand sequence-to-sequence Transformers.

Importing this package is fast: torch is imported when a name that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.artifact import load, save
    from transduce.config import (
        BERTConfig,
        GPTConfig,
        RNNConfig,
        RunConfig,
        TrainingConfig,
        TransformerConfig,
        ViTConfig,
        Vocabulary,
        preset,
    )
    from transduce.data.text_files import limit_lines
    from transduce.data.tokenizer import SideTokenizer, TokenizerPair
    from transduce.data.tokenizer_training import train_tokenizer
    from transduce.decoding.beam import beam_search
    from transduce.decoding.generator import TextGenerator
    from transduce.decoding.translation import Translation
    from transduce.decoding.translator import Translator
    from transduce.errors import TransduceError
    from transduce.evaluation.evaluate import evaluate
    from transduce.evaluation.evaluation import Evaluation
    from transduce.inspection.capture import inspect
    from transduce.models.bert import BERT
    from transduce.models.gpt import GPT
    from transduce.models.rnn import RNN
    from transduce.models.transformer import Transformer
    from transduce.models.vit import ViT
    from transduce.prediction.image_classes import ImageClassifier
    from transduce.prediction.masked_text import MaskedTextModel
    from transduce.runs.session import Run
    from transduce.runs.train import (
        finetune_text_classifier,
        train,
        train_image_classifier,
        train_language_model,
        train_masked_language_model,
    )

# The module of each public name. The imports above tell editors and type checkers the same.
_MODULES = {
    "BERT": "models.bert",
    "BERTConfig": "config",
    "Evaluation": "evaluation.evaluation",
    "GPT": "models.gpt",
    "GPTConfig": "config",
    "ImageClassifier": "prediction.image_classes",
    "MaskedTextModel": "prediction.masked_text",
    "RNN": "models.rnn",
    "RNNConfig": "config",
    "Run": "runs.session",
    "RunConfig": "config",
    "SideTokenizer": "data.tokenizer",
    "TextGenerator": "decoding.generator",
    "TokenizerPair": "data.tokenizer",
    "TrainingConfig": "config",
    "TransduceError": "errors",
    "Transformer": "models.transformer",
    "TransformerConfig": "config",
    "Translation": "decoding.translation",
    "Translator": "decoding.translator",
    "ViT": "models.vit",
    "ViTConfig": "config",
    "Vocabulary": "config",
    "beam_search": "decoding.beam",
    "evaluate": "evaluation.evaluate",
    "finetune_text_classifier": "runs.train",
    "inspect": "inspection.capture",
    "limit_lines": "data.text_files",
    "load": "artifact",
    "preset": "config",
    "save": "artifact",
    "train": "runs.train",
    "train_image_classifier": "runs.train",
    "train_language_model": "runs.train",
    "train_masked_language_model": "runs.train",
    "train_tokenizer": "data.tokenizer_training",
}

__all__ = [
    "BERT",
    "GPT",
    "RNN",
    "BERTConfig",
    "Evaluation",
    "GPTConfig",
    "ImageClassifier",
    "MaskedTextModel",
    "RNNConfig",
    "Run",
    "RunConfig",
    "SideTokenizer",
    "TextGenerator",
    "TokenizerPair",
    "TrainingConfig",
    "TransduceError",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "ViT",
    "ViTConfig",
    "Vocabulary",
    "beam_search",
    "evaluate",
    "finetune_text_classifier",
    "inspect",
    "limit_lines",
    "load",
    "preset",
    "save",
    "train",
    "train_image_classifier",
    "train_language_model",
    "train_masked_language_model",
    "train_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("transduce")
    if name not in _MODULES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    value = getattr(import_module(f"transduce.{_MODULES[name]}"), name)
    globals()[name] = value  # so that the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
