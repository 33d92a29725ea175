"""Every setting of a Transformer in every format: what is exported is equal, all else is refused by name.

A new setting needs values in `VALUES`, unless its type lists them, and a decision for each format.
"""

import types
import typing
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch

from builders import shaken, small_config
from exchange import LINES, like_marian, train_sentencepiece
from interop.foreign import marian
from transduce.config import TransformerConfig
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.runs.export_targets import TARGETS
from transduce.runs.parity import our_scores, take_samples

# Other values than those of the small models that are changed, for settings whose type does not list them.
VALUES = {
    "encoder_layers": [1],
    "decoder_layers": [3],
    "d_model": [24],
    "d_ff": [20],
    "heads": [2],
    "d_k": [6],
    "d_v": [6],
    "dropout": [0.3],
    "attention_dropout": [0.3],
    "activation_dropout": [0.3],
    "norm_epsilon": [1e-6, 1e-5, 1e-2],
    "first_position": [2],
    "max_length": [50],
    "source_factors": [[5]],
    "attention": [{"kind": "window"}, {"kind": "low_rank"}, {"kind": "hashed"}],
}


def listed(kind):
    """Return the values that a type lists."""
    if kind is bool:
        return [False, True]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return [value for each in get_args(kind) for value in listed(each)]
    return []


def choices():
    """Yield every setting with each of its values."""
    for name, field in TransformerConfig.model_fields.items():
        if name != "family":
            for value in VALUES.get(name) or listed(field.annotation):
                yield name, value


CHOICES = list(choices())
# What each format cannot express, beginning with a model that it can
REFUSED = {
    "ctranslate2": {
        ("d_k", 6),  # each alone: both have to be equal
        ("d_v", 6),
        ("decoder", "ssru"),
        ("mask_padding", False),
        "source_factors",
        "attention",
    },
    "huggingface": {
        ("d_k", 6),
        ("d_v", 6),
        ("activation", "swiglu"),
        ("activation", "geglu"),
        ("normalization", "rms"),
        ("norm", "pre"),  # with sinusoids like these
        ("encoder_norm", "pre"),
        ("norm_epsilon", 1e-6),
        ("norm_epsilon", 1e-2),
        ("final_norm", True),
        ("bias", False),
        ("decoder", "ssru"),
        ("positions", "learned"),  # without a norm after embeddings
        ("positions", "rotary"),
        ("positions", "none"),
        ("sine_spacing", "endpoint"),
        ("first_position", 2),
        ("embedding_norm", True),  # with sinusoids
        ("mask_padding", False),
        "source_factors",
        "attention",
    },
    "onnx": {"source_factors", "attention"},
    "marian": {
        ("d_k", 6),
        ("d_v", 6),
        ("activation", "gelu"),
        ("activation", "gelu_tanh"),
        ("activation", "swiglu"),
        ("activation", "geglu"),
        ("normalization", "rms"),
        ("norm", "pre"),
        ("encoder_norm", "pre"),
        ("norm_epsilon", 1e-2),
        ("positions", "learned"),
        ("positions", "rotary"),
        ("positions", "none"),
        ("sine_layout", "interleaved"),
        ("sine_spacing", "paper"),
        ("first_position", 2),
        ("scale_embeddings", False),
        ("mask_padding", False),
        "source_factors",
        "attention",
    },
}
PACKAGES = {"ctranslate2": "ctranslate2", "huggingface": "transformers", "onnx": "onnxruntime"}


QUICK = [("normalization", "rms"), ("fixed_padding", True)]


def is_refused(to, name, value):
    return name in REFUSED[to] or (name, value) in [each for each in REFUSED[to] if isinstance(each, tuple)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(LINES, LINES[::-1], size=300)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    return train_sentencepiece(tmp_path_factory.mktemp("pieces") / "spm.model")


def test_every_setting_has_values():
    assert {name for name, _ in CHOICES} == set(TransformerConfig.model_fields) - {"family"}


def cases():
    """Yield formats with settings; most exports to ONNX, of several seconds each, are slow tests."""
    for to in PACKAGES:
        for name, value in CHOICES:
            is_slow = to == "onnx" and not is_refused(to, name, value) and (name, value) not in QUICK
            yield pytest.param(to, name, value, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("to", "name", "value"), list(cases()))
def test_a_library_computes_the_same_or_the_setting_is_refused(to, name, value, tokenizer, tmp_path):
    pytest.importorskip(PACKAGES[to])
    base = {"sine_layout": "halves"} if to == "huggingface" else {}
    model = shaken(build(small_config(**{**base, name: value}), tokenizer.vocabulary, seed=1))
    target, folder = TARGETS[to], tmp_path / "out"
    if is_refused(to, name, value):
        with pytest.raises(ConfigError, match=name):
            target.write(model, tokenizer, folder, None, None)
        assert not folder.exists()
        return
    target.write(model, tokenizer, folder, None, None)
    pairs = take_samples(model, tokenizer, longest=20).pairs
    theirs = target.peer(model, tokenizer, folder, None).score(pairs)
    for pair, our, their in zip(pairs, our_scores(model, pairs), theirs, strict=True):
        same = our if their.dim() > 1 else our.gather(1, torch.tensor(pair.target)[:, None]).squeeze(1)
        torch.testing.assert_close(their, same, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "value"), CHOICES, ids=str)
def test_marian_computes_the_same_or_the_setting_is_refused(name, value, sentencepiece, tmp_path):
    """The oracle reads the arrays of the file itself."""
    model, tokenizer = like_marian(sentencepiece, **{name: value})
    target, folder = TARGETS["marian"], tmp_path / "out"
    if is_refused("marian", name, value):
        with pytest.raises(ConfigError, match=name):
            target.write(model, tokenizer, folder, None, None)
        assert not folder.exists()
        return
    notes = target.write(model, tokenizer, folder, None, None)
    assert any("epsilon" in note for note in notes) == (model.config.norm_epsilon != marian.EPSILON)
    assert target.verify(model, tokenizer, folder, None)
    config = model.config
    with np.load(folder / "model.npz") as file:
        state = {key: torch.from_numpy(file[key]) for key in file.files if not key.startswith("special:")}
    shape = marian.Shape(
        ssru=config.decoder == "ssru",
        activation=config.activation,
        tied=config.share,
        top=config.has_final_norm,
        embedding_norm=config.embedding_norm,
        width=config.d_model,
        inner=config.d_ff,
        heads=config.heads,
    )
    source, target = torch.tensor([[5, 6, 4, 7, 2]]), torch.tensor([[3, 8, 9, 4]])
    with torch.no_grad():
        expected = marian.logits(shape, state, source, target)
        found = model(source, torch.cat((torch.tensor([[model.vocabulary.bos]]), target), dim=1))
    torch.testing.assert_close(found[..., : expected.shape[-1]], expected, atol=1e-4, rtol=1e-4)
