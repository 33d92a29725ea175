"""One record per kind of run."""

import pytest

from transduce.config import BERTConfig, GPTConfig, RNNConfig, TransformerConfig, ViTConfig
from transduce.runs.task import task_for

KINDS = [
    (TransformerConfig(), "train"),
    (RNNConfig(), "train"),
    (GPTConfig(), "lm train"),
    (BERTConfig(), "mlm train"),
    (BERTConfig(masked_head=False, pooler=True, classes=["a", "b"]), "mlm finetune"),
    (ViTConfig(), "vision train"),
]


@pytest.mark.parametrize(("model", "command"), KINDS, ids=lambda value: str(value)[:20])
def test_every_model_has_a_task(model, command):
    task = task_for(model)
    assert task.command == command
    assert task.describe(model).endswith(".")
    assert "{place}" in task.card.usage
