import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.training.loss import label_smoothed_cross_entropy


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
