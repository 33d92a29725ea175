"""One record per kind of run."""

import pytest

from transduce.config import BERTConfig, GPTConfig, RNNConfig, TransformerConfig, ViTConfig
from transduce.runs.task import task_for

KINDS = [
    (TransformerConfig(), "translation", "train"),
    (RNNConfig(), "translation", "train"),
    (GPTConfig(), "language_model", "lm train"),
    (BERTConfig(), "masked_language_model", "mlm train"),
    (BERTConfig(masked_head=False, pooler=True, classes=["a", "b"]), "text_classes", "mlm finetune"),
    (ViTConfig(), "image_classes", "vision train"),
]


@pytest.mark.parametrize(("model", "name", "command"), KINDS, ids=lambda value: str(value)[:20])
def test_every_model_has_a_task(model, name, command):
    task = task_for(model)
    assert (task.name, task.command) == (name, command)
    assert task.describe(model).endswith(".")
    assert "{place}" in task.card.usage
