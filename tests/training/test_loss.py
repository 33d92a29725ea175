import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.training.loss import (
    chunked_loss,
    classification_loss,
    label_smoothed_cross_entropy,
    r_drop_loss,
)


@given(size=st.integers(2, 30), smoothing=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_cross_entropy_against_the_smoothed_distribution(size, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, size, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, size, (2, 3), generator=generator)
    targets[0, 2] = 0
    losses = []
    for b, t in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:
        smoothed = torch.full((size,), smoothing / size, dtype=torch.float64)
        smoothed[targets[b, t]] += 1 - smoothing
        losses.append(-(smoothed * logits[b, t].log_softmax(-1)).sum())
    found = label_smoothed_cross_entropy(logits, targets, pad=0, smoothing=smoothing)
    assert found.item() == pytest.approx(torch.stack(losses).mean().item())


@given(
    rows=st.integers(1, 4),
    length=st.integers(1, 6),
    size=st.integers(2, 20),
    smoothing=st.floats(0, 0.9),
    chunk=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_chunked_loss_has_the_gradients_of_the_oracle(rows, length, size, smoothing, chunk, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, length, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    output = torch.randn(size, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, size, (rows, length), generator=generator)
    targets[0, 0] = 1
    tokens = int((targets != 0).sum())
    loss = chunked_loss(hidden, output, targets, pad=0, smoothing=smoothing, chunk=chunk)
    logits = hidden @ output.T
    expected = label_smoothed_cross_entropy(logits, targets, pad=0, smoothing=smoothing) * tokens
    torch.testing.assert_close(loss.smoothed, expected)
    for one, other in zip(
        torch.autograd.grad(loss.smoothed * 0.7, (hidden, output)),
        torch.autograd.grad(expected * 0.7, (hidden, output)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert loss.tokens == tokens
    plain = label_smoothed_cross_entropy(logits, targets, pad=0, smoothing=0.0) * tokens
    assert loss.negative_log_likelihood == pytest.approx(plain.item())
    assert loss.correct == int((logits.argmax(-1) == targets)[targets != 0].sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_frozen_output_layer_does_not_change_the_other_gradients(smoothing):
    hidden, output = torch.randn(2, 5, 8, requires_grad=True), torch.randn(20, 8)
    targets = torch.randint(0, 20, (2, 5))
    gradients = []
    for trained in (True, False):
        layer = output.clone().requires_grad_(trained)
        loss = chunked_loss(hidden, layer, targets, pad=0, smoothing=smoothing, chunk=4).smoothed
        gradients += torch.autograd.grad(loss, hidden, retain_graph=True)
        if not trained:
            loss.backward()
            assert layer.grad is None
    assert torch.equal(*gradients)


def test_no_gradients_are_computed_without_need():
    with torch.no_grad():
        loss = chunked_loss(
            torch.randn(1, 2, 3), torch.randn(5, 3), torch.tensor([[1, 2]]), pad=0, smoothing=0.1
        )
    assert not loss.smoothed.requires_grad


@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 5),
    size=st.integers(2, 12),
    smoothing=st.floats(0, 0.9),
    weight=st.floats(0, 5),
    chunk=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_r_drop_has_the_gradients_of_its_formula(rows, length, size, smoothing, weight, chunk, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, rows, length, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    output = torch.randn(size, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, size, (rows, length), generator=generator)
    targets[0, 0] = 1
    real = targets != 0
    options = {"pad": 0, "smoothing": smoothing}
    loss = r_drop_loss(hidden, output, targets, weight=weight, chunk=chunk, **options)
    one, other = ((hidden[i] @ output.T).log_softmax(-1) for i in (0, 1))
    entropy = (
        sum(label_smoothed_cross_entropy(part, targets, **options) for part in (one, other)) * real.sum()
    )
    divergences = sum((a.exp() * (a - b)).sum(-1)[real].sum() for a, b in ((one, other), (other, one)))
    expected = (entropy + weight / 2 * divergences) / 2
    torch.testing.assert_close(loss.smoothed, expected)
    for found, right in zip(
        torch.autograd.grad(loss.smoothed, (hidden, output)),
        torch.autograd.grad(expected, (hidden, output)),
        strict=True,
    ):
        torch.testing.assert_close(found, right)
    assert loss.tokens == int(real.sum())
    likelihoods = sum(-part.gather(2, targets[:, :, None])[real].sum().item() for part in (one, other))
    assert loss.negative_log_likelihood == pytest.approx(likelihoods / 2)
    right = sum(int((part.argmax(-1) == targets)[real].sum()) for part in (one, other))
    assert loss.correct == right // 2


def test_r_drop_in_bfloat16_is_close_to_float32():
    hidden, output = torch.randn(2, 4, 5, 64, requires_grad=True), torch.randn(50, 64, requires_grad=True)
    options = {"targets": torch.randint(1, 50, (4, 5)), "pad": 0, "smoothing": 0.1, "weight": 5.0}
    exact = r_drop_loss(hidden / 8, output, **options).smoothed
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = r_drop_loss(hidden / 8, output, **options).smoothed
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.02)
    gradients = [torch.autograd.grad(loss, (hidden, output)) for loss in (rough, exact)]
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() / other.norm() < 0.03


def test_the_loss_in_bfloat16_is_close_to_float32():
    hidden = torch.randn(4, 5, 64, requires_grad=True)
    output = torch.randn(50, 64, requires_grad=True)
    targets = torch.randint(1, 50, (4, 5))
    exact = chunked_loss(hidden, output, targets, pad=0, smoothing=0.1)
    gradients = torch.autograd.grad(exact.smoothed, (hidden, output))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = chunked_loss(hidden, output, targets, pad=0, smoothing=0.1)
    assert rough.smoothed.dtype == torch.float32
    assert rough.smoothed.item() == pytest.approx(exact.smoothed.item(), rel=0.01)
    assert rough.smoothed.item() != exact.smoothed.item()
    for one, other in zip(torch.autograd.grad(rough.smoothed, (hidden, output)), gradients, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() / other.norm() < 0.02


def test_the_loss_of_classes_counts_every_example_as_one_token():
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 1, 2])
    loss = classification_loss(logits, labels, smoothing=0.1)
    whole = label_smoothed_cross_entropy(logits[None], labels[None], pad=-1, smoothing=0.1)
    plain = label_smoothed_cross_entropy(logits[None], labels[None], pad=-1, smoothing=0.0)
    assert (loss.correct, loss.tokens) == (2, 3)
    assert loss.smoothed.item() == pytest.approx(3 * whole.item())
    assert loss.negative_log_likelihood == pytest.approx(3 * plain.item())
    assert loss.smoothed.requires_grad
