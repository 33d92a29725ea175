"""The bench behind docs/why-attention.md: what chooses the learning rate is not what is reported."""

import importlib.util
from pathlib import Path

import torch


def bench():
    script = Path(__file__).parents[1] / "bench" / "why_attention.py"
    spec = importlib.util.spec_from_file_location("why_attention", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rate_is_chosen_on_other_sequences():
    why = bench()

    def measured(rate, tried, right):
        return why.Measured("Transformer", "copy", 5, 10, rate, 1, 100, 1, "2", tried, right, right, 0.1)

    found = [measured(1e-3, 0.8, 0.6), measured(3e-3, 0.7, 0.9)]
    assert [one.rate for one in why.best(found, "Transformer", "copy", 5)] == [1e-3]
    chosen_on, reported = (
        why.draw("copy", 40, why.TESTED, torch.Generator().manual_seed(seed)).source
        for seed in (why.TRIAL, why.TEST)
    )
    assert not (chosen_on[:, None] == reported[None]).all(dim=-1).any()
