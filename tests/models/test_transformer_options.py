"""Options that other toolkits' models need: each changes what it says, and every path agrees about it."""

import math

import pytest
import torch
from torch.nn import functional as F

from builders import TOKENS, small_config, small_model
from transduce import artifact
from transduce.config import Vocabulary
from transduce.engine.precision import for_decoding
from transduce.models.build import build
from transduce.nn.positional import sinusoids
from transduce.training.loss import chunked_loss, label_smoothed_cross_entropy, r_drop_loss

OPTIONS = [
    {"final_norm": True},
    {"norm": "pre", "final_norm": False},
    {"bias": False},
    {"bias": False, "norm": "pre", "activation": "swiglu"},
    {"output_bias": True},
    {"output_bias": True, "share": "none"},
    {"output_bias": True, "share": "target"},
    {"share": "inputs", "output_bias": True},
    {"scale_embeddings": False},
    {"embedding_norm": True, "positions": "learned"},
    {"sine_layout": "halves"},
    {"sine_layout": "halves", "sine_spacing": "endpoint", "first_position": 2},
    {"normalization": "rms", "norm": "pre"},
    {"normalization": "rms", "bias": False, "activation": "geglu"},
    {"encoder_norm": "pre"},
    {"encoder_norm": "pre", "final_norm": True, "norm": "post"},
    {"decoder": "ssru"},
    {"decoder": "ssru", "norm": "pre", "output_bias": True},
]


def tokens(*shape):
    return torch.randint(3, TOKENS, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_equal_the_whole_target_in_python_and_in_the_engine(options):
    model = small_model(d_model=32, d_ff=48, heads=2, **options)
    source, target = tokens(3, 7), tokens(3, 5)
    source[0, 5:] = model.vocabulary.pad
    expected = model(source, target)
    for stepping in (model, for_decoding(model, "float32", "cpu")):
        with torch.inference_mode():
            state = stepping.start(stepping.encode(source))
            logits = torch.stack([stepping.step(target[:, i], state) for i in range(5)], dim=1)
        torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_changes_the_result_and_is_saved(options, tmp_path):
    model = small_model(**options)
    artifact.save(model, tmp_path / "model")
    loaded = artifact.load(tmp_path / "model")
    source, target = tokens(2, 6), tokens(2, 4)
    assert loaded.config == model.config
    assert torch.equal(loaded(source, target), model(source, target))
    plain = small_model()
    assert not torch.allclose(plain(source, target), model(source, target))


def test_final_norm_is_that_of_torch():
    torch.manual_seed(0)
    model = small_model(final_norm=True)
    memory = model.encode(tokens(1, 5)).states
    norm = model.encoder.final_norm
    assert isinstance(norm, torch.nn.LayerNorm)
    before = (memory - norm.bias) / norm.weight
    torch.testing.assert_close(before.mean(dim=-1), torch.zeros(1, 5), atol=1e-5, rtol=0)


def test_sinusoids_in_halves_end_at_the_base():
    table = sinusoids(3, 8, start=2, layout="halves", spacing="endpoint")
    for row, position in enumerate((2, 3, 4)):
        for i in range(4):
            angle = position / 10000 ** (i / 3)
            assert math.isclose(table[row, i], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[row, 4 + i], math.cos(angle), abs_tol=1e-6)


def test_a_decoder_may_start_with_the_padding_token():
    vocabulary = Vocabulary(source=TOKENS, target=TOKENS, pad=0, bos=0, eos=2)
    model = build(small_config(), vocabulary, seed=0).eval()
    source, target = tokens(2, 6), tokens(2, 5)
    target[:, 0], target[0, 3:] = 0, 0
    logits = model(source, target)
    alone = model(source[:1], target[:1, :3])
    torch.testing.assert_close(logits[:1, :3], alone)
    changed = model.target_embedding.weight.data[0].clone()
    model.target_embedding.weight.data[0] += 1
    assert not torch.allclose(model(source, target)[1, 2], logits[1, 2])  # the first position is attended to
    model.target_embedding.weight.data[0] = changed


def test_padding_that_is_attended_to():
    model = small_model(mask_padding=False)
    source, target = tokens(1, 4), tokens(1, 3)
    padded = F.pad(source, (0, 2), value=model.vocabulary.pad)
    assert not torch.allclose(model(padded, target), model(source, target))
    masked = small_model()
    torch.testing.assert_close(masked(padded, target), masked(source, target))


@pytest.mark.parametrize("twice", [False, True])
def test_loss_with_an_output_bias(twice):
    torch.manual_seed(0)
    hidden = torch.randn(2, 3, 5, 8, requires_grad=True)
    output, bias = torch.randn(11, 8, requires_grad=True), torch.randn(11, requires_grad=True)
    labels = torch.randint(1, 11, (3, 5))
    labels[0, 3:] = 0
    options = {"pad": 0, "smoothing": 0.1, "bias": bias}
    if twice:
        loss = r_drop_loss(hidden, output, labels, weight=0.0, **options)
        logits = F.linear(hidden, output, bias)
        expected = sum(label_smoothed_cross_entropy(part, labels, pad=0) for part in logits) / 2
    else:
        loss = chunked_loss(hidden[0], output, labels, **options)
        expected = label_smoothed_cross_entropy(F.linear(hidden[0], output, bias), labels, pad=0)
    torch.testing.assert_close(loss.smoothed / loss.tokens, expected)
    parameters = (hidden, output, bias)
    ours = torch.autograd.grad(loss.smoothed / loss.tokens, parameters)
    for mine, theirs in zip(ours, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)
