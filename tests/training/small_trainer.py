"""A trainer of a small model, and objectives that fail in chosen ways."""

import json
import math

import torch

from builders import TOKENS, small_config
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.data.subword_nmt import word_tokenizer
from transduce.data.tokenizer import SPECIAL, TokenizerPair
from transduce.models.build import build
from transduce.training import checkpoint
from transduce.training.loss import Loss
from transduce.training.objectives.translation import TranslationObjective
from transduce.training.trainer import Trainer

WORDS = word_tokenizer([*SPECIAL, *(f"word{number}" for number in range(len(SPECIAL), TOKENS))])
TOKENIZER = TokenizerPair(WORDS, WORDS)
VOCABULARY = Vocabulary(source=TOKENS, target=TOKENS)


class RecordingCallback:
    """Remembers messages and validations in the order they came."""

    def __init__(self):
        self.events = []
        self.steps = []

    @property
    def messages(self):
        return [event for event in self.events if isinstance(event, str)]

    def on_message(self, message):
        self.events.append(message)

    def on_step(self, progress, metrics):
        self.steps.append(metrics)

    def on_log(self, progress, metrics):
        pass

    def on_validation(self, progress, validation):
        self.events.append(validation)


def make_trainer(
    tmp_path, pairs, *, train=None, valid=None, model=None, vocabulary=VOCABULARY, scorer=None, **training
):
    """A trainer in ``tmp_path/run``; ``train`` and ``valid`` wrap the objectives if they are given."""
    settings = {
        "steps": 6,
        "warmup": 2,
        "learning_rate": 0.01,
        "max_tokens": 64,
        "validate_every": 2,
        **training,
    }
    config = RunConfig(model=model or small_config(), training=TrainingConfig(**settings))
    model = build(config.model, vocabulary, seed=0)
    data = TranslationObjective(pairs, config.training)
    folder = tmp_path / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return Trainer(
        folder,
        config,
        model,
        TOKENIZER,
        train(data) if train else data,
        valid(data) if valid else data,
        RecordingCallback(),
        scorer=scorer,
    )


class WrappedObjective:
    """An objective that passes everything on to another one."""

    example, ignored_source, longest_source, shortest = "pair", "the source is ignored", None, 1

    def __init__(self, real):
        self.real = real

    def steps(self, epoch):
        return self.real.steps(epoch)

    def microbatches(self, model, indices, epoch):
        return [indices]

    def loss(self, model, indices, epoch):
        return self.real.loss(model, indices, epoch)

    def shuffled_source_loss(self, model, indices):
        return None


class NaNLoss(WrappedObjective):
    """The loss of some calls, counted from 1, is NaN."""

    def __init__(self, real, calls):
        super().__init__(real)
        self.nan_calls, self.calls = calls, 0

    def loss(self, model, indices, epoch):
        self.calls += 1
        loss = self.real.loss(model, indices, epoch)
        if self.calls in self.nan_calls:
            return Loss(loss.smoothed * math.nan, math.nan, 0, loss.tokens)
        return loss


class LimitedMemory(WrappedObjective):
    """Memory for a few pairs at a time: more of them run out of it in the backward pass."""

    def __init__(self, real, limit):
        super().__init__(real)
        self.limit, self.sizes = limit, []

    def loss(self, model, indices, epoch):
        loss = self.real.loss(model, indices, epoch)
        self.sizes.append(len(indices))
        if len(indices) > self.limit:
            model.output.weight.grad = torch.ones_like(model.output.weight)  # half of a backward pass
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return loss

    def shuffled_source_loss(self, model, indices):
        return self.real.shuffled_source_loss(model, indices)


def read_metrics(trainer):
    return [json.loads(line) for line in (trainer.folder / "metrics.jsonl").read_text().splitlines()]


def saved_steps(trainer):
    return [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(trainer.folder / "checkpoints")]


def damage(path):
    """Flip one bit of a checkpoint's weights."""
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-1] ^= 0x40
    (path / "model.safetensors").write_bytes(content)


def assert_same_gradients(first, second):
    for one, two in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, atol=1e-4, rtol=1e-4)
