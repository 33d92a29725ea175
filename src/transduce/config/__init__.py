"""Configuration: data, validated once at the door, never changed after. Defaults are the paper's."""

from transduce.config.families import (
    BERTConfig,
    GPTConfig,
    ModelConfig,
    RNNConfig,
    TransformerConfig,
    ViTConfig,
    Vocabulary,
)
from transduce.config.presets import PRESETS, preset
from transduce.config.run import RunConfig, TrainingConfig
from transduce.config.settings import Settings
from transduce.config.toml_files import read_toml, resolve, write_toml
from transduce.config.validation import check_family, validate

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
