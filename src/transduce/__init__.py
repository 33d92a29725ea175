"""Transduce: train, understand and serve your own sequence-to-sequence Transformers.

Importing this package is cheap: torch is imported when a name that needs it is first used.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.artifact import load, save
    from transduce.config import RNNConfig, RunConfig, TransformerConfig, Vocabulary, preset
    from transduce.decoding.beam import beam_search
    from transduce.decoding.generator import TextGenerator
    from transduce.decoding.translation import Translation
    from transduce.decoding.translator import Translator
    from transduce.errors import TransduceError
    from transduce.evaluation.evaluate import evaluate
    from transduce.evaluation.evaluation import Evaluation
    from transduce.inspection.capture import inspect
    from transduce.models.rnn import RNN
    from transduce.models.transformer import Transformer
    from transduce.prediction.image_classes import ImageClassifier
    from transduce.prediction.masked_text import MaskedTextModel
    from transduce.runs.train import train

__version__ = version("transduce")

__all__ = [
    "RNN",
    "Evaluation",
    "ImageClassifier",
    "MaskedTextModel",
    "RNNConfig",
    "RunConfig",
    "TextGenerator",
    "TransduceError",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "Vocabulary",
    "beam_search",
    "evaluate",
    "inspect",
    "load",
    "preset",
    "save",
    "train",
]

_HOMES = {
    "Evaluation": "evaluation.evaluation",
    "ImageClassifier": "prediction.image_classes",
    "MaskedTextModel": "prediction.masked_text",
    "RNN": "models.rnn",
    "RNNConfig": "config",
    "RunConfig": "config",
    "TextGenerator": "decoding.generator",
    "TransduceError": "errors",
    "Transformer": "models.transformer",
    "TransformerConfig": "config",
    "Translation": "decoding.translation",
    "Translator": "decoding.translator",
    "Vocabulary": "config",
    "beam_search": "decoding.beam",
    "evaluate": "evaluation.evaluate",
    "inspect": "inspection.capture",
    "load": "artifact",
    "preset": "config",
    "save": "artifact",
    "train": "runs.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    return getattr(import_module(f"transduce.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
