"""What a user choices, and what is chosen for them where they wish nothing."""

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from transduce import artifact
from transduce.config import (
    PRESETS,
    ModelConfig,
    RNNConfig,
    RunConfig,
    TrainingConfig,
    TransformerConfig,
    check_family,
    preset,
    read_toml,
)
from transduce.data.prepared import Pairs
from transduce.errors import ConfigError
from transduce.training.objectives.objective import Objective

FEW_PAIRS = 300_000  # up to here a small model learns as much as a large one, sooner


def config_of(config: RunConfig | str | PathLike[str] | None) -> RunConfig | None:
    """A run's configuration, or the file that holds it."""
    if config is None or isinstance(config, RunConfig):
        return config
    return read_toml(Path(config).expanduser())


@dataclass(frozen=True)
class UserChoices:
    """All of it may be left open."""

    config: RunConfig | None = None
    preset: str | None = None
    family: str | None = None  # of a model whose sizes suit the text
    start: Path | None = None  # a model folder to go on from, on other text
    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.config and self.preset:
            raise ConfigError(
                "a run file and a preset were given", f"write preset = {self.preset!r} into the file"
            )
        if self.preset and self.start:
            raise ConfigError(
                "a preset and a model to start from were given",
                "leave the preset out: the model has its sizes",
            )
        if sum(length is not None for length in (self.steps, self.epochs, self.minutes)) > 1:
            raise ConfigError("more than one length was given", "choose one of steps, epochs and minutes")
        for name in ("steps", "epochs", "minutes"):
            length = getattr(self, name)
            if length is not None and not 0 < length < math.inf:
                raise ConfigError(f"{name} = {length} is no length", "give more than 0")
        if self.preset:
            preset(self.preset)
        if self.family:
            check_family(self.family)

    def limit(self, max_length: int) -> int:
        """The longest text that the wished model can read, up to ``max_length`` tokens.

        It must be a model that turns one text into another.
        """
        model = self.model()
        if self.family not in (None, "transformer", "rnn"):
            raise _of_other_data(self.family)
        return min(max_length, (_turning_text(model).length_limit if model else None) or max_length)

    def model(self) -> ModelConfig | None:
        """The architecture, if it is wished for."""
        model = self._given_model()
        if model and self.family and model.family != self.family:
            raise ConfigError(
                f"family = {self.family!r} was given, and a model of family {model.family!r}",
                "leave one of them out",
            )
        return model

    def _given_model(self) -> ModelConfig | None:
        """From a folder, a preset or a run file; dropouts may change between models that are alike."""
        if self.start:
            found = artifact.read_header(self.start).model
            wished = self.config.model.model_dump(exclude_unset=True) if self.config else {}
            if wished.get("family", found.family) != found.family:
                raise ConfigError(
                    f"{self.start} is of family {found.family!r}, not {wished['family']!r}",
                    "take the family out of the run file: the model has one",
                )
            free = artifact.EDITABLE & wished.keys() & dict(found).keys()
            return found.model_copy(update={key: wished[key] for key in free})
        if self.preset:
            return preset(self.preset).model
        return self.config.model if self.config and "model" in self.config.model_fields_set else None


def choose(choices: UserChoices, pairs: Pairs, *, joint: bool, steps: int | None = None) -> RunConfig:
    """A whole configuration: what was wished for, and for the rest what suits the text.

    ``steps`` are those that a wish for epochs or minutes comes to.
    """
    model = _turning_text(choices.model() or _suitable_model(choices.family, pairs))
    if not joint and model.share == "all":
        model = model.model_copy(update={"share": "target"})
    given = asked(choices)
    steps = steps or choices.steps or given.get("steps") or usual_steps(pairs, given)
    training = suitable(pairs, steps, fine_tuning=choices.start is not None)
    changes = {**given, "steps": training.steps, "minutes": choices.minutes or given.get("minutes")}
    return RunConfig(model=model, training=training.model_copy(update=changes))


def _turning_text(model: ModelConfig) -> TransformerConfig | RNNConfig:
    if isinstance(model, TransformerConfig | RNNConfig):
        return model
    raise _of_other_data(model.family)


def _of_other_data(family: str) -> ConfigError:
    if family == "vit":
        return ConfigError("a model of family 'vit' reads images, not text", "use transduce vision train")
    command = "lm" if family == "gpt" else "mlm"
    return ConfigError(
        f"a model of family {family!r} turns no text into another",
        f"choose a transformer or an rnn, or use transduce {command} train",
    )


def _suitable_model(family: str | None, pairs: Pairs) -> ModelConfig:
    few = len(pairs) <= FEW_PAIRS
    if family == "rnn":
        return PRESETS["rnn"].model if few else RNNConfig()
    return PRESETS["small" if few else "base"].model


def asked(choices: UserChoices) -> dict[str, Any]:
    """What a run file or a preset says about training; a preset's length is that of the paper's text."""
    if choices.config:
        return choices.config.training.model_dump(exclude_unset=True)
    given = preset(choices.preset).training.model_dump(exclude_unset=True) if choices.preset else {}
    return {key: value for key, value in given.items() if key != "steps"}


def usual_steps(pairs: Pairs, given: dict[str, Any]) -> int:
    """About 30 times through the text in the batches that are ``given``, from 2,000 to 100,000 steps."""
    source, target = (int(side.lengths.sum()) for side in (pairs.source, pairs.target))
    batches = max(source, target) / tokens_a_batch(given)
    batches_a_step = math.ceil((given.get("batch_tokens") or 1) / (target / batches))
    return int(min(100_000, max(2_000, 30 * batches / batches_a_step)))


def tokens_a_batch(given: dict[str, Any]) -> float:
    """About as many as there is room for in a batch; the rest is padding."""
    most: int = given.get("max_tokens", TrainingConfig().max_tokens)
    return 0.9 * most


def suitable(pairs: Pairs, steps: int, *, fine_tuning: bool = False) -> TrainingConfig:
    """Training for this much text and so many steps."""
    rate = 1e-3 if len(pairs) <= FEW_PAIRS else None
    return TrainingConfig(
        steps=steps,
        warmup=max(1, min(4000, steps // 10)),
        learning_rate=1e-4 if fine_tuning else rate,
        validate_every=max(1, min(1000, max(100, steps // 20), steps)),
    )


def steps_of_epochs(data: Objective[Any], epochs: float) -> int:
    """How many steps it takes to go through the data so many times."""
    whole = int(epochs)
    steps = sum(len(data.steps(epoch)) for epoch in range(whole))
    return max(1, steps + round((epochs - whole) * len(data.steps(whole))))
