import pytest
import torch

from builders import random_tokens, small_bert, small_gpt, small_model, small_rnn
from transduce.engine.training import accelerate
from transduce.models.build import build
from transduce.nn.adapter import (
    LowRankLinear,
    adapt,
    adapter_parameters,
    initial_adapter,
    linear_layers,
    merged_weights,
    parameters_to_save,
)

RANK, ALPHA = 3, 6.0


def adapted(model, *, trained: bool):
    """With all layers adapted; if ``trained``, as if training had moved B away from zero."""
    adapt(model, linear_layers(model), rank=RANK, alpha=ALPHA)
    weights = initial_adapter(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in adapter_parameters(model).items():
            parameter.copy_(weights[name])
            if trained and name.endswith(".up"):
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def plain(model):
    """A new model with the merged weights."""
    merged = build(model.config, model.vocabulary, seed=5).eval()
    merged.load_state_dict(merged_weights(model, dict(model.named_parameters())), strict=False)
    return merged


SOURCE, TARGET = random_tokens(3, 7), random_tokens(3, 6, seed=1)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_a_new_adapter_has_no_effect_to_the_last_bit(activation):
    logits = small_model(activation=activation)(SOURCE, TARGET)
    model = adapted(small_model(activation=activation), trained=False)
    assert torch.equal(model(SOURCE, TARGET), logits)


@pytest.mark.parametrize(
    "changes", [{}, {"activation": "swiglu"}, {"attention": {"kind": "window", "radius": 2}}]
)
def test_merged_weights_compute_the_same(changes):
    model = adapted(small_model(**changes), trained=True)
    logits = model(SOURCE, TARGET)
    assert (logits - small_model(**changes)(SOURCE, TARGET)).abs().max() > 0.1
    torch.testing.assert_close(plain(model)(SOURCE, TARGET), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [small_gpt, small_bert])
def test_other_families_are_adapted_too(make):
    model = adapted(make(), trained=True)
    tokens = random_tokens(2, 5)
    torch.testing.assert_close(plain(model)(tokens), model(tokens), rtol=1e-5, atol=1e-5)


def test_the_addition_is_the_equation():
    linear = torch.nn.Linear(5, 4)
    layer = LowRankLinear(linear, rank=2, alpha=3.0)
    torch.nn.init.normal_(layer.down)
    torch.nn.init.normal_(layer.up)
    x = torch.randn(6, 5)
    expected = linear(x) + 3 / 2 * x @ layer.down.T @ layer.up.T
    torch.testing.assert_close(layer(x), expected)


def test_every_attention_and_feed_forward_block_is_adapted_and_nothing_else():
    names = list(linear_layers(small_model()))
    assert len(names) == 2 * 4 + 2 * 7
    assert "decoder.layers.1.memory_attention.key_value" in names
    assert not any("embedding" in name for name in names)
    assert not linear_layers(small_rnn())


def test_the_matrix_of_an_ssru_is_adapted():
    assert "decoder.layers.1.self_attention.forget_candidate" in linear_layers(small_model(decoder="ssru"))
    model = adapted(small_model(decoder="ssru"), trained=True)
    assert model.decoder.layers[1].self_attention.forget_candidate.up.any()
    torch.testing.assert_close(plain(model)(SOURCE, TARGET), model(SOURCE, TARGET))


@pytest.mark.parametrize("fused", [False, True])
def test_only_the_adapter_is_trained(fused):
    model = adapted(small_model(), trained=False).train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    if fused:
        accelerate(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):  # in the first step, A has no gradient: B is zero
        optimizer.zero_grad()
        model(SOURCE, TARGET).logsumexp(-1).sum().backward()
        optimizer.step()
    changed = {
        name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])
    }
    assert changed == adapter_parameters(model).keys() == parameters_to_save(model).keys()


def test_gradients_are_the_same_with_the_engine():
    gradients = []
    for fused in (False, True):
        model = adapted(small_model(), trained=True).train()
        if fused:
            accelerate(model)
        model(SOURCE, TARGET).logsumexp(-1).sum().backward()
        gradients.append([parameter.grad for parameter in adapter_parameters(model).values()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_the_initial_adapter_depends_on_the_seed_alone():
    model = small_model()
    adapt(model, linear_layers(model), rank=RANK, alpha=ALPHA)
    first, again, other = (initial_adapter(model, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(
        *(weights["encoder.layers.0.feed_forward.inner.down"] for weights in (first, other))
    )
    assert all(not tensor.any() for name, tensor in first.items() if name.endswith(".up"))


@pytest.mark.parametrize("layers", [[], ["encoder"], ["decoder.layers.0.self_attention.elsewhere"]])
def test_layers_that_a_model_does_not_have_are_refused(layers):
    with pytest.raises(ValueError, match="linear layer"):
        adapt(small_model(), layers, rank=RANK, alpha=ALPHA)
