"""What Marian's options say about a model must be what our configuration says; else it is refused by name.

There is no Marian here to ask. The reader of its files, which tests compare with an independent computation,
takes its place.
"""

from typing import Any

import torch
from torch import Tensor

from transduce.config import TransformerConfig, Vocabulary
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.added_padding import added_padding, without_row
from transduce.interop.marian_file import MarianFile
from transduce.interop.marian_import import (
    ACTIVATIONS,
    EPSILON,
    marian_rows,
    marian_settings,
    marian_state,
    padding_place,
)
from transduce.interop.tables import import_rows
from transduce.models.build import build
from transduce.models.transformer import Transformer

_REMEDY = "use another format"
_LARGEST_EPSILON = 1e-5  # up to which a layer norm computes nearly the same; the difference is measured
_TOLERANCE = 1e-4
_ROWS, _LENGTH = 8, 16
# Settings that may differ. The first ones do not change what a trained model with sinusoids computes; biases
# that are missing here are zeros there; the epsilon has a limit of its own.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "max_length", "fixed_padding"}
_FREE |= {"bias", "output_bias", "norm_epsilon"}


def require_expressible(model: Transformer, file: MarianFile) -> list[str]:
    """Refuse a model if the options of ``file`` do not say the same about it; return notes for the user."""
    config = model.config
    if config.norm_epsilon > _LARGEST_EPSILON:
        raise ConfigError(
            f"Marian's layer norms have an epsilon of {EPSILON:g}, but the model has norm_epsilon = "
            f"{config.norm_epsilon:g}",
            _REMEDY,
        )
    if config.activation not in ACTIVATIONS:
        known = " or ".join(ACTIVATIONS)
        raise ConfigError(
            f"Marian has {known}, but the model has activation = {config.activation!r}", _REMEDY
        )
    if found := find_difference(config, marian_settings(file)):
        name, ours, theirs = found
        raise ConfigError(f"the model has {name} = {ours!r}, but Marian has {theirs!r}", _REMEDY)
    if bool(model.target_embedding.weight[model.vocabulary.bos].any()):
        raise ConfigError(
            "Marian's decoder starts from a zero embedding, but this model's first token has another", _REMEDY
        )
    if config.norm_epsilon != EPSILON:
        return [f"Marian's layer norms have an epsilon of {EPSILON:g}, not {config.norm_epsilon:g}"]
    return []


def find_difference(ours: TransformerConfig, theirs: TransformerConfig) -> tuple[str, Any, Any] | None:
    """Return the first setting by which both compute something else, and its values."""
    for name in TransformerConfig.model_fields:
        values = _meaning(ours, name), _meaning(theirs, name)
        if name not in _FREE and values[0] != values[1]:
            return name, *values
    return None


def _meaning(config: TransformerConfig, name: str) -> Any:
    """Return a setting; one that is not set, as what that means."""
    match name:
        case "d_k" | "d_v":
            return getattr(config, name) or config.d_model // config.heads
        case "encoder_norm":
            return config.encoder_norm or config.norm
        case "final_norm":
            return config.has_final_norm
        case "attention":
            return config.attention.kind
    return getattr(config, name)


@torch.inference_mode()
def compare_logits(model: Transformer, file: MarianFile) -> float:
    """Return the largest difference between a model's logits and those of the file; refuse a large one."""
    place, padding = added_padding(model), padding_place(file)
    vocabulary, generator = model.vocabulary, torch.Generator().manual_seed(0)
    # Of both models, which number the same tokens differently
    sources: list[Tensor] = []
    targets: list[Tensor] = []
    for size, both in ((vocabulary.source, sources), (vocabulary.target, targets)):
        tokens = torch.randint(size, (_ROWS, _LENGTH), generator=generator)
        tokens[(tokens == vocabulary.pad) | (tokens == vocabulary.bos)] = vocabulary.eos
        both += [tokens, _renumbered(tokens, place, padding)]
    logits = []
    for each, source, target in zip((model, _twin(model, file)), sources, targets, strict=True):
        first = torch.full((_ROWS, 1), each.vocabulary.bos)
        logits.append(each(source, torch.cat((first, target), dim=1)).transpose(0, 2))
    ours, theirs = without_row(logits[0], place), without_row(logits[1], padding)
    difference = float((ours - theirs).abs().max())
    if not torch.allclose(theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise ArtifactError(
            f"Marian would not compute the same: logits of random tokens differ by up to {difference:.1e}",
            "nothing was written; use another format, or add --no-check to write it anyway",
        )
    return difference


def _renumbered(tokens: Tensor, place: int | None, padding: int) -> Tensor:
    """Return the ids of the same tokens where padding is elsewhere."""
    ranks = tokens if place is None else tokens - (tokens > place).long()
    return ranks + (ranks >= padding).long()


def _twin(model: Transformer, file: MarianFile) -> Transformer:
    """Return the model that the file describes; reading it adds a token, from which the decoder starts."""
    config, place, padding = marian_settings(file), added_padding(model), padding_place(file)
    old, more = model.vocabulary, place is None
    pad, eos = (int(_renumbered(torch.tensor(token), place, padding)) for token in (old.pad, old.eos))
    vocabulary = Vocabulary(
        source=old.source + more,
        target=old.target + more,
        pad=pad if more else padding,
        bos=padding,
        eos=eos,
    )
    twin = build(config, vocabulary).eval()
    import_rows(twin, marian_rows(config), marian_state(file))
    return twin
