"""Configuration: immutable data, validated once. The defaults are those of the papers."""

from transduce.config.bert import BERTConfig
from transduce.config.families import ModelConfig, TransformerConfig, Vocabulary, check_family
from transduce.config.gpt import GPTConfig
from transduce.config.presets import PRESETS, preset
from transduce.config.rnn import RNNConfig
from transduce.config.run import RunConfig, TrainingConfig
from transduce.config.settings import Settings, validate
from transduce.config.toml_files import read_toml, resolve, write_toml
from transduce.config.vit import ViTConfig

__all__ = [
    "PRESETS",
    "BERTConfig",
    "GPTConfig",
    "ModelConfig",
    "RNNConfig",
    "RunConfig",
    "Settings",
    "TrainingConfig",
    "TransformerConfig",
    "ViTConfig",
    "Vocabulary",
    "check_family",
    "preset",
    "read_toml",
    "resolve",
    "validate",
    "write_toml",
]
