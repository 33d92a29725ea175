"""What is chosen for a run on plain text where its user choices nothing."""

import math
from typing import Any

from transduce.config import PRESETS, BERTConfig, GPTConfig, RunConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.runs.defaults import UserChoices, asked, tokens_a_batch

FEW_TOKENS = 10_000_000  # up to here a small model learns as much as a large one, sooner
EPOCHS = 20


def choose_model(
    choices: UserChoices, family: str, tokens: int, max_length: int | None = None
) -> GPTConfig | BERTConfig:
    """The wished model, which must be of this family, or one that suits so much text."""
    small = tokens <= FEW_TOKENS
    model = choices.model() or PRESETS[f"{family}-small" if small else family].model
    if not isinstance(model, GPTConfig | BERTConfig) or model.family != family:
        raise ConfigError(
            f"a model of family {model.family!r} was asked for, but here one of {family!r} is trained",
            f"choose a preset such as {family}-small, or a model of that family to begin with",
        )
    if max_length and choices.start and max_length != model.max_length:
        raise ConfigError(
            f"the model to start from reads {model.max_length} tokens at a time, not {max_length}",
            "leave --max-length out",
        )
    return model.model_copy(update={"max_length": max_length}) if max_length else model


def choose_training(choices: UserChoices, tokens: int, steps: int | None = None) -> TrainingConfig:
    """About 20 times through the text, between 1,000 and 100,000 steps; no label smoothing."""
    given = asked(choices)
    for name in ("r_drop", "bpe_dropout"):
        if given.get(name):
            raise ConfigError(f"{name} is for pairs of texts", "leave it out of the run file")
    default = TrainingConfig()
    steps = steps or choices.steps or given.get("steps")
    steps = steps or _usual_steps(tokens, given)
    rate = 1e-4 if choices.start else 1e-3 if tokens <= FEW_TOKENS else 3e-4
    suitable = {
        "warmup": max(1, min(2_000, steps // 10)),
        "learning_rate": rate,
        "schedule": "cosine",
        "label_smoothing": 0.0,
        "validate_every": max(1, min(1_000, max(100, steps // 20), steps)),
        **given,
        "steps": steps,
        "minutes": choices.minutes or given.get("minutes"),
    }
    return default.model_copy(update=suitable)


def _usual_steps(tokens: int, given: dict[str, Any]) -> int:
    a_batch = tokens_a_batch(given)
    batches_a_step = math.ceil((given.get("batch_tokens") or 1) / a_batch)
    return int(min(100_000, max(1_000, EPOCHS * tokens / a_batch / batches_a_step)))


def choose(
    choices: UserChoices, model: GPTConfig | BERTConfig, tokens: int, steps: int | None = None
) -> RunConfig:
    """A whole configuration."""
    return RunConfig(model=model, training=choose_training(choices, tokens, steps))
