"""Transduce: train, understand and serve your own sequence-to-sequence Transformers.

Importing this package is cheap: torch is imported when a name that needs it is first used.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.artifact import load, save
    from transduce.config import RNNConfig, RunConfig, TransformerConfig, Vocabulary, preset
    from transduce.decoding.translator import Translator
    from transduce.errors import TransduceError
    from transduce.evaluation.evaluate import evaluate
    from transduce.evaluation.evaluation import Evaluation
    from transduce.inspection.capture import inspect
    from transduce.models.rnn import RNN
    from transduce.models.transformer import Transformer
    from transduce.runs.train import train

__version__ = version("transduce")

__all__ = [
    "RNN",
    "Evaluation",
    "RNNConfig",
    "RunConfig",
    "TransduceError",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "Vocabulary",
    "evaluate",
    "inspect",
    "load",
    "preset",
    "save",
    "train",
]

_HOMES = {
    "RNN": "models.rnn",
    "RNNConfig": "config",
    "RunConfig": "config",
    "TransduceError": "errors",
    "Transformer": "models.transformer",
    "TransformerConfig": "config",
    "Translator": "decoding.translator",
    "Vocabulary": "config",
    "Evaluation": "evaluation.evaluation",
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
