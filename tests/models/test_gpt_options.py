"""The options that give a GPT the shape of Llama: what they compute, step by step as in one pass."""

import pytest
import torch
from torch import nn

from builders import random_tokens, small_gpt
from transduce import artifact
from transduce.config import GPTConfig, validate
from transduce.engine.packed_gpt import PackedGPT
from transduce.engine.precision import to_precision
from transduce.engine.training import accelerate
from transduce.errors import ConfigError
from transduce.nn.multi_head_attention import FullSelfAttention

LLAMA = {
    "positions": "rotary",
    "normalization": "rms",
    "activation": "swiglu",
    "bias": False,
    "key_value_heads": 2,
    "share_output": False,
}
OPTIONS = [
    LLAMA,
    {"positions": "rotary", "rotary_base": 37.0},
    {"positions": "sinusoidal", "share_output": False},
    {"positions": "none", "bias": False, "qkv_bias": True, "d_k": 6, "d_v": 10},
]


def padded(*lengths, pad=0):
    tokens = random_tokens(len(lengths), max(lengths))
    return tokens.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], pad)


@pytest.mark.parametrize("options", OPTIONS)
def test_steps_give_what_the_whole_pass_gives(options):
    """Prompts of different lengths, and a change of rows on the way."""
    model, lengths = small_gpt(**options), [7, 1, 4]
    prompts = padded(*lengths, pad=model.vocabulary.pad)
    texts = [prompts[row, :length].tolist() for row, length in enumerate(lengths)]
    state = model.start(model.encode(prompts), capacity=2)
    said = random_tokens(3, 6, seed=1)
    for step in range(6):
        if step:
            texts = [[*text, int(token)] for text, token in zip(texts, said[:, step], strict=True)]
        logits = model.step(said[:, step], state)
        for text, found in zip(texts, logits, strict=True):
            with torch.no_grad():
                wanted = model(torch.tensor([text]))[0, -1]
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        if step == 2:
            state.select(torch.tensor([[2], [0], [0]]))
            texts = [texts[2], texts[0], texts[0]]


@pytest.mark.parametrize("options", OPTIONS)
def test_saved_and_loaded(options, tmp_path):
    model, tokens = small_gpt(**options), random_tokens(2, 9)
    artifact.save(model, tmp_path / "model")
    loaded = artifact.load_as(tmp_path / "model", "gpt")
    assert loaded.config == model.config
    assert torch.equal(model(tokens), loaded(tokens))


def test_what_the_options_change():
    """The parameters that exist, and rotary positions that count only distances."""
    model = small_gpt(**LLAMA)
    names = dict(model.named_parameters())
    assert not any(name.endswith("bias") for name in names)
    assert {"input_embedding.weight", "output.weight"} <= set(names)
    assert "positions.weight" not in names
    assert isinstance(model.decoder.final_norm, nn.RMSNorm)
    assert all(isinstance(layer.around_feed_forward.norm, nn.RMSNorm) for layer in model.decoder.layers)
    attention = model.decoder.layers[0].self_attention
    width = model.config.key_width
    assert attention.query_key_value.weight.shape[0] == (model.config.heads + 2 * 2) * width
    plain, rotated = (small_gpt(positions=kind, layers=1) for kind in ("none", "rotary"))
    rotated.load_state_dict(plain.state_dict())
    tokens = random_tokens(1, 6)
    swapped = tokens[:, [1, 0, 2, 3, 4, 5]]
    torch.testing.assert_close(plain(tokens)[0, -1], plain(swapped)[0, -1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(rotated(tokens)[0, -1], rotated(swapped)[0, -1], atol=1e-3)


def test_grouped_heads_are_full_heads_with_equal_keys_and_values():
    grouped = FullSelfAttention(16, 4, key_value_heads=2, causal=True)
    full = FullSelfAttention(16, 4, causal=True)
    query, key, value = torch.split(grouped.query_key_value.weight.detach(), grouped.widths)
    twice = [part.view(2, 4, 16).repeat_interleave(2, dim=0).flatten(0, 1) for part in (key, value)]
    with torch.no_grad():
        full.query_key_value.weight.copy_(torch.cat([query, *twice]))
        full.output.weight.copy_(grouped.output.weight)
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(grouped(x), full(x))


def test_the_engine_leaves_alone_what_it_cannot_compute():
    """And computes what it can: other bases, sinusoids, an output matrix of its own."""
    sizes = {"d_model": 32, "d_ff": 64, "heads": 2}
    if PackedGPT.of(small_gpt(**sizes)) is None:
        pytest.skip("no engine on this machine")
    assert PackedGPT.of(small_gpt(**sizes, normalization="rms")) is None
    assert PackedGPT.of(small_gpt(**sizes, key_value_heads=1)) is None
    prompts, said = padded(5, 2, 4), random_tokens(3, 3, seed=1)
    kinds = ({"positions": "rotary", "rotary_base": 50.0}, {"positions": "sinusoidal"}, {"positions": "none"})
    for kind in kinds:
        model = small_gpt(**sizes, **kind, share_output=False, bias=False)
        packed = PackedGPT.of(model)
        states = [each.start(each.encode(prompts)) for each in (model, packed)]
        for step in range(3):
            wanted, found = (
                each.step(said[:, step], state) for each, state in zip((model, packed), states, strict=True)
            )
            torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    eight = to_precision(small_gpt(**sizes, **LLAMA | {"key_value_heads": 1}), "int8")
    assert torch.isfinite(eight.step(said[:, 0], eight.start(eight.encode(prompts)))).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_accelerated_training_gives_the_same_gradients(options):
    sizes = {"d_model": 32, "d_ff": 64, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    options = {**options, "d_k": 16, "d_v": 16} | (
        {"key_value_heads": 1} if "key_value_heads" in options else {}
    )
    tokens, gradients = random_tokens(2, 7), []
    for fast in (False, True):
        model = small_gpt(**sizes, **options).train()
        if fast:
            accelerate(model)
        model(tokens).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, wanted in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"heads": 4, "key_value_heads": 3}, "key_value_heads"),
        ({"d_model": 4, "heads": 4, "positions": "rotary"}, "d_k"),
        ({"d_model": 10, "heads": 4}, "d_k and d_v"),
    ],
)
def test_sizes_that_do_not_fit(settings, named):
    with pytest.raises(ConfigError, match=named):
        validate(GPTConfig, settings, where="the test")
