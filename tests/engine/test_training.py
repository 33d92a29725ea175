"""What the engine computes in training, against the modules of `transduce.nn`."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_calls import every_engine, needs_engine
from torch import nn

from builders import TOKENS, shared_by, small_bert, small_gpt, small_model
from transduce.engine import training
from transduce.engine.native import supported_engines
from transduce.engine.training import (
    FusedAttention,
    FusedFeedForward,
    FusedResidual,
    accelerate,
    cross_entropy_,
)
from transduce.nn.dropout import use_generator
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import EncoderDecoderAttention, FullSelfAttention
from transduce.nn.residual import Residual
from transduce.training.loss import chunked_loss

pytestmark = needs_engine
SEEDS = st.integers(0, 1000)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def gradients(result, *inputs):
    """The gradients of a random linear function of the result."""
    torch.manual_seed(5)
    return torch.autograd.grad((result * torch.randn_like(result)).sum(), inputs)


@every_engine
@given(
    seed=SEEDS,
    rows=st.integers(1, 70),
    width=st.sampled_from([16, 48, 128]),
    norm=st.sampled_from(["pre", "post"]),
    threads=st.integers(1, 4),
)
def test_a_residual_connection_and_its_gradients(engine, seed, rows, width, norm, threads):
    torch.manual_seed(seed)
    residual = Residual(width, norm=norm).train()
    for parameter in residual.parameters():
        nn.init.normal_(parameter)
    x, update = (torch.randn(rows, width, requires_grad=True) for _ in range(2))
    inputs = x, update, *(residual.parameters() if norm == "post" else ())
    expected = residual(x, lambda _: update)
    residual.fused = FusedResidual(engine)
    with shared_by(threads):
        found = residual(x, lambda _: update)
        close(found, expected)
        for one, other in zip(gradients(found, *inputs), gradients(expected, *inputs), strict=True):
            close(one, other)


@every_engine
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_drops_a_share_and_its_gradient_the_same(engine, norm):
    residual = Residual(64, norm=norm, dropout=0.3).train()
    residual.fused = FusedResidual(engine)
    residual.dropout.generator = torch.Generator().manual_seed(1)
    x, update = torch.zeros(500, 64, requires_grad=True), torch.ones(500, 64, requires_grad=True)
    only_dropout = copy.deepcopy(residual)
    only_dropout.pre = True
    only_dropout.dropout.generator = torch.Generator().manual_seed(1)
    kept = only_dropout(x, lambda _: update).detach()
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    assert (kept != 0).float().mean() == pytest.approx(0.7, abs=0.01)
    assert ((kept != 0).float().mean(dim=0) - 0.7).abs().max() < 0.1  # in every column and every row
    assert ((kept != 0).float().mean(dim=1) - 0.7).abs().max() < 0.3
    x, update = (torch.randn(500, 64, requires_grad=True) for _ in range(2))
    found = residual(x, lambda _: update)
    expected = x + kept * update
    expected = expected if norm == "pre" else residual.norm(expected)
    close(found, expected)
    for one, other in zip(gradients(found, x, update), gradients(expected, x, update), strict=True):
        close(one, other)
    assert not torch.equal(residual(x, lambda _: update), found)  # another application drops others


def test_dropout_is_the_same_on_every_instruction_set():
    dropped = []
    for each in supported_engines():
        residual = Residual(48, norm="pre", dropout=0.5).train()
        residual.fused = FusedResidual(each)
        residual.dropout.generator = torch.Generator().manual_seed(7)
        dropped.append(residual(torch.zeros(30, 48), lambda _: torch.ones(30, 48)))
    assert all(torch.equal(dropped[0], other) for other in dropped)


@every_engine
@given(seed=SEEDS, rows=st.integers(0, 70), d_ff=st.sampled_from([16, 48, 80]), threads=st.integers(1, 4))
def test_a_feed_forward_network_and_its_gradients(engine, seed, rows, d_ff, threads):
    torch.manual_seed(seed)
    network = FeedForward(32, d_ff).train()
    x = torch.randn(rows, 32, requires_grad=True)
    inputs = x, *network.parameters()
    expected = network(x)
    network.fused = FusedFeedForward(engine)
    with shared_by(threads):
        found = network(x)
        close(found, expected)
        for one, other in zip(gradients(found, *inputs), gradients(expected, *inputs), strict=True):
            close(one, other)


@every_engine
@given(
    seed=SEEDS,
    lengths=st.lists(st.integers(0, 37), min_size=1, max_size=4),
    causal=st.booleans(),
    sizes=st.sampled_from([(2, 16, 16), (3, 16, 48), (1, 64, 32)]),
    threads=st.integers(1, 4),
)
def test_self_attention_and_its_gradients(engine, seed, lengths, causal, sizes, threads):
    torch.manual_seed(seed)
    heads, d_k, d_v = sizes
    attention = FullSelfAttention(32, heads, causal=causal, d_k=d_k, d_v=d_v).train()
    longest = max(*lengths, 1)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), longest, 32, requires_grad=True)
    inputs = x, *attention.parameters()
    expected = attention(x, mask) * mask[..., None]
    attention.fused = FusedAttention(engine)
    with shared_by(threads):
        found = attention(x, mask) * mask[..., None]
        close(found, expected)
        for one, other in zip(gradients(found, *inputs), gradients(expected, *inputs), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@every_engine
@given(seed=SEEDS, lengths=st.lists(st.integers(1, 37), min_size=1, max_size=4), targets=st.integers(1, 20))
def test_encoder_decoder_attention_and_its_gradients(engine, seed, lengths, targets):
    torch.manual_seed(seed)
    attention = EncoderDecoderAttention(32, 2).train()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), targets, 32, requires_grad=True)
    memory = torch.randn(len(lengths), max(lengths), 32, requires_grad=True)
    inputs = x, memory, *attention.parameters()
    expected = attention(x, memory, mask)
    attention.fused = FusedAttention(engine)
    found = attention(x, memory, mask)
    close(found, expected)
    for one, other in zip(gradients(found, *inputs), gradients(expected, *inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_the_future_and_padding_change_nothing_to_the_last_bit():
    attention = FullSelfAttention(32, 2, causal=True).train()
    attention.fused = FusedAttention(supported_engines()[0])
    x, mask = torch.randn(2, 9, 32), torch.arange(9) < torch.tensor([[9], [5]])
    changed = x.clone()
    changed[0, 6:], changed[1, 5:] = 1e6, torch.nan
    found, other = attention(x, mask), attention(changed, mask)
    assert torch.equal(found[0, :6], other[0, :6])
    assert torch.equal(found[1, :5], other[1, :5])


def test_masks_with_gaps_and_long_sequences_are_left_to_torch(monkeypatch):
    attention = FullSelfAttention(32, 2).train()
    x, mask = torch.randn(1, 5, 32), torch.tensor([[True, False, True, True, False]])
    expected = attention(x, mask)
    attention.fused = FusedAttention(supported_engines()[0])
    assert torch.equal(attention(x, mask), expected)
    monkeypatch.setattr(training, "LONGEST", 4)
    monkeypatch.setattr(training, "_attend", None)
    attention(x, None)


@every_engine
@given(seed=SEEDS, rows=st.integers(1, 40), vocabulary=st.integers(2, 90), smoothing=st.floats(0, 0.9))
def test_cross_entropy_and_its_gradient(engine, seed, rows, vocabulary, smoothing):
    torch.manual_seed(seed)
    logits = 5 * torch.randn(rows, vocabulary)
    labels = torch.randint(0, vocabulary, (rows,))
    found = logits.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "engine", lambda: engine)
        log_normalizer, right, highest, total = cross_entropy_(found, labels, smoothing)
    close(log_normalizer, logits.logsumexp(1, keepdim=True))
    assert torch.equal(right, logits.gather(1, labels[:, None]))
    assert torch.equal(highest, logits.amax(1, keepdim=True))
    expected = logits.softmax(1) - (1 - smoothing) * nn.functional.one_hot(labels, vocabulary)
    torch.testing.assert_close(found / total, expected, rtol=1e-4, atol=1e-6)


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match="out of range"):
        cross_entropy_(torch.randn(2, 5), torch.tensor([1, 5]), 0.1)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre"}, {"positions": "rotary"}, {"activation": "swiglu"}, {"attention_dropout": 0.1}],
)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_whole_model_trains_alike(changes, dropout):
    """The same loss and gradients without dropout; with it, the same again from the same generator."""
    model = small_model(d_model=32, d_ff=48, heads=2, dropout=dropout, **changes).train()
    source, target = (torch.randint(4, TOKENS, (3, length)) for length in (7, 6))
    source[1, 4:], target[2, 3:] = 0, 0

    def losses(model):
        use_generator(model, torch.Generator().manual_seed(3))
        model.zero_grad()
        hidden = model.decode(target, model.encode(source))
        loss = chunked_loss(hidden, model.output.weight, target, pad=0, smoothing=0.1).smoothed
        loss.backward()
        return loss, {name: parameter.grad for name, parameter in model.named_parameters()}

    if dropout or "attention_dropout" in changes:
        accelerate(model)
        (loss, grads), (expected_loss, expected) = losses(model), losses(model)
        assert torch.equal(loss, expected_loss)
        assert all(torch.equal(grads[name], expected[name]) for name in grads)
        return
    expected_loss, expected = losses(copy.deepcopy(model))
    accelerate(model)
    loss, grads = losses(model)
    close(loss, expected_loss)
    for name, gradient in grads.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("make", [small_bert, small_gpt])
def test_other_families_train_alike(make):
    without_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = make(d_model=32, heads=2, **without_dropout).train()
    tokens = torch.randint(4, TOKENS, (2, 6))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = model(tokens)
    expected_gradients = torch.autograd.grad(expected.square().sum(), parameters, allow_unused=True)
    accelerate(model)
    assert any(isinstance(getattr(module, "fused", None), FusedAttention) for module in model.modules())
    found = model(tokens)
    close(found, expected)
    found_gradients = torch.autograd.grad(found.square().sum(), parameters, allow_unused=True)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_bfloat16_by_autocast_trains_alike():
    model = small_model(d_model=32, d_ff=48, heads=2, dropout=0.0).train()
    source, target = (torch.randint(4, TOKENS, (3, length)) for length in (7, 6))
    twin = copy.deepcopy(model)
    accelerate(twin)
    found = []
    for each in (model, twin):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = each(source, target)
        logits.float().square().mean().backward()
        found.append((logits.float(), each.encoder.layers[0].feed_forward.inner.weight.grad))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0.1, atol=0.1)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0.1, atol=0.1)


def test_an_accelerated_model_is_copied_and_sent_to_other_processes():
    model = small_model(d_model=32, d_ff=48, heads=2, dropout=0.0).train()
    accelerate(model)
    source, target = (torch.randint(4, TOKENS, (2, length)) for length in (7, 6))
    program = (
        "import pickle, sys, torch\n"
        "model, source, target = pickle.load(sys.stdin.buffer)\n"
        "loss = model(source, target).square().sum()\n"
        "loss.backward()\n"
        "print(loss.item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((model, source, target)),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    expected = model(source, target).square().sum().item()
    assert float(done.stdout) == pytest.approx(expected, rel=1e-4)
    assert copy.deepcopy(model)(source, target).square().sum().item() == pytest.approx(expected)


def test_shapes_and_types_that_do_not_fit_are_refused():
    used = supported_engines()[0]
    residual, x = Residual(32).train(), torch.randn(4, 32)
    residual.fused = FusedResidual(used)
    with pytest.raises(ValueError, match="shape"):
        residual(x, lambda x: x[:1])
    attention = EncoderDecoderAttention(32, 2).train()
    attention.fused = FusedAttention(used)
    with pytest.raises(ValueError, match="examples"):
        attention(torch.randn(4, 3, 32), torch.randn(1, 5, 32))
    with pytest.raises(ValueError, match="labels"):
        cross_entropy_(torch.randn(3, 5), torch.tensor([1, 2]), 0.1)
    with pytest.raises(ValueError, match="labels"):
        cross_entropy_(torch.randn(5, 3).t(), torch.tensor([1, 2, 3]), 0.1)


def test_no_examples_and_gradients_in_another_order():
    used = supported_engines()[0]
    attention = FullSelfAttention(32, 2).train()
    attention.fused = FusedAttention(used)
    assert attention(torch.randn(0, 5, 32)).shape == (0, 5, 32)
    residual = Residual(32).train()
    residual.fused = FusedResidual(used)
    assert residual(torch.randn(0, 32), lambda x: x).shape == (0, 32)
    x = torch.randn(6, 32, 4, requires_grad=True)
    y = residual(x.transpose(1, 2), lambda x: x)
    (found,) = torch.autograd.grad(y.transpose(1, 2).square().sum(), x)
    residual.fused = None
    y = residual(x.transpose(1, 2), lambda x: x)
    (expected,) = torch.autograd.grad(y.transpose(1, 2).square().sum(), x)
    close(found, expected)


def test_a_forked_process_computes_with_threads_of_its_own():
    """Those of torch's OpenMP library, which the engine shares, are not inherited."""
    program = (
        "import os, torch\n"
        "from builders import TOKENS, small_model\n"
        "from transduce.engine.training import accelerate\n"
        "torch.set_num_threads(2)\n"
        "model = small_model(d_model=32, d_ff=48, heads=2, dropout=0.0).train()\n"
        "accelerate(model)\n"
        "x = torch.randn(512, 64, 32)\n"
        "attention = model.encoder.layers[0].self_attention\n"
        "attention(x)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    from transduce.engine.precision import for_decoding\n"
        "    torch.set_num_threads(1)\n"  # torch itself would wait for its threads
        "    torch.get_num_threads = lambda: 2\n"
        "    packed = for_decoding(model.eval(), 'int8', 'cpu')\n"
        "    packed.encode(torch.randint(4, TOKENS, (256, 40)))\n"
        "    os._exit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=Path(__file__).parents[1])
