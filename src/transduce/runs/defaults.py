"""What the user chose, and the defaults for the rest, which depend on the data."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

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
    validate,
)
from transduce.config.explanation import suggest
from transduce.data.prepared import Pairs
from transduce.errors import ConfigError
from transduce.files import user_path
from transduce.training.objectives.objective import Objective

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ModelT = TypeVar("ModelT", bound=ModelConfig)
SHORTEST_AVERAGED_RUN = 2_000  # steps; the final model of a shorter run is its last checkpoint
SMALL_CORPUS = 300_000  # pairs: up to here a small model reaches the quality of a large one, sooner
SMALL_TEXT = 10_000_000  # tokens: the same for plain text
FULL_BATCH = 0.9  # of max_tokens are real tokens in a typical batch; the rest is padding
TRANSLATION_EPOCHS, TEXT_EPOCHS, IMAGE_EPOCHS = 30, 20, 30
FINE_TUNING_EPOCHS = 10
_TABLES = ("model", "training")


@dataclass(frozen=True)
class UserChoices:
    """What the user chose about model and training. Everything may be left open."""

    config: RunConfig | None = None
    preset: str | None = None
    family: str | None = None  # of a model whose size is chosen from the data
    from_model: Path | None = None  # a model folder to fine-tune
    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)  # by dotted key: "training.warmup"

    def __post_init__(self) -> None:
        if self.config and self.preset:
            raise ConfigError(
                "a run file and a preset were given", f"write preset = {self.preset!r} into the run file"
            )
        if self.preset and self.from_model:
            raise ConfigError(
                "a preset and a model to start from were given",
                "leave the preset out: the sizes are those of the model",
            )
        if sum(length is not None for length in (self.steps, self.epochs, self.minutes)) > 1:
            raise ConfigError(
                "more than one length of training was given", "choose one of --steps, --epochs and --minutes"
            )
        for name, most in (("steps", 10_000_000), ("epochs", 1_000_000), ("minutes", 10_000_000)):
            length = getattr(self, name)
            if length is not None and not (isinstance(length, int | float) and 0 < length <= most):
                raise ConfigError(f"{name} is {length!r}", f"give a number above 0 and up to {most:,}")
        if self.preset:
            preset(self.preset)
        if self.family:
            check_family(self.family)
        validate(TrainingConfig, self._table("training"), where="[training]")

    def model(self) -> ModelConfig | None:
        """Return the architecture, or ``None`` if it is to be chosen from the data."""
        model = self._given_model()
        if model and self.family and model.family != self.family:
            raise ConfigError(
                f"family {self.family!r} and a model of family {model.family!r} were given",
                "leave one of them out",
            )
        return model

    def training(self) -> dict[str, Any]:
        """Return the training settings that were chosen; the number of steps of a preset is not one.

        A preset's steps are those of the paper's data.
        """
        chosen: dict[str, Any] = {}
        if self.preset:
            chosen = preset(self.preset).training.model_dump(exclude_unset=True, exclude={"steps"})
        if self.config:
            chosen = self.config.training.model_dump(exclude_unset=True)
        chosen.update(self._table("training"))
        chosen.update({k: v for k, v in (("steps", self.steps), ("minutes", self.minutes)) if v is not None})
        return chosen

    def adjust(self, model: ModelT) -> ModelT:
        """Apply ``model.…`` overrides to an architecture."""
        changes = self._table("model")
        if not changes:
            return model
        if "family" in changes:
            raise ConfigError("model.family cannot be overridden", "use --family, --preset or a run file")
        fixed = sorted(changes.keys() - artifact.EDITABLE)
        if self.from_model and fixed:
            raise ConfigError(
                f"model.{fixed[0]} is fixed by the model in {self.from_model}",
                f"change only {', '.join(sorted(artifact.EDITABLE))}",
            )
        return validate(type(model), _merge(model.model_dump(exclude_none=True), changes), where="[model]")

    def _table(self, name: str) -> dict[str, Any]:
        """Return the overrides of one table of run.toml, as nested dictionaries."""
        table: dict[str, Any] = {}
        for key, setting in self.overrides.items():
            first, *rest = key.split(".")
            if first not in _TABLES or not rest:
                raise ConfigError(f"unknown setting {key!r}", _where_it_belongs(key))
            if first == name:
                value: Any = setting
                for part in reversed(rest):
                    value = {part: value}
                table = _merge(table, value)
        return table

    def _given_model(self) -> ModelConfig | None:
        """Return the architecture of a model folder, a preset or a run file.

        A run file may change the dropout of a model folder: other changes would not fit its weights.
        """
        if self.from_model:
            header = artifact.read_header(self.from_model)
            if header.weights == "int8":
                raise ConfigError(
                    f"the weights in {self.from_model} are rounded to int8, from which no training can start",
                    "train from the model that it was made from",
                )
            found = header.model
            wanted = self.config.model.model_dump(exclude_unset=True) if self.config else {}
            if wanted.get("family", found.family) != found.family:
                raise ConfigError(
                    f"{self.from_model} is of family {found.family!r}, not {wanted['family']!r}",
                    "remove the family from the run file",
                )
            free = artifact.EDITABLE & wanted.keys() & dict(found).keys()
            return found.model_copy(update={key: wanted[key] for key in free})
        if self.preset:
            return preset(self.preset).model
        return self.config.model if self.config and "model" in self.config.model_fields_set else None


def user_choices(
    *,
    config: RunConfig | str | PathLike[str] | None = None,
    preset: str | None = None,
    family: str | None = None,
    from_model: str | PathLike[str] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: str | None = None,
    save_minutes: float | None = None,
    validation_metric: str | None = None,
    adapter: int | None = None,
    overrides: Mapping[str, object] | None = None,
) -> UserChoices:
    """Return the choices that the arguments of `transduce.train` and its siblings make."""
    named = {
        "training.learning_rate": learning_rate,
        "training.seed": seed,
        "training.precision": precision,
        "training.save_minutes": save_minutes,
        "training.validation_metric": validation_metric,
        "training.adapter_rank": adapter,
    }
    if not isinstance(overrides, Mapping | None):
        raise ConfigError(
            f"overrides is a {type(overrides).__name__}", 'give a dict: {"training.warmup": 500}'
        )
    settings = {**(overrides or {})}
    for key, value in (*named.items(), ("training.steps", steps), ("training.minutes", minutes)):
        if value is not None and key in settings:
            raise ConfigError(f"{key} was given twice", "leave it out of the overrides (--set)")
        if value is not None and key in named:
            settings[key] = value
    if config is not None and not isinstance(config, RunConfig):
        config = read_toml(user_path(config))
    return UserChoices(
        config=config,
        preset=preset,
        family=family,
        from_model=None if from_model is None else user_path(from_model),
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        overrides=settings,
    )


def parse_overrides(settings: Iterable[str] | None) -> dict[str, object]:
    """Parse ``KEY=VALUE`` texts; a value is TOML, or a string without quotes."""
    overrides: dict[str, object] = {}
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting} has no value", "write --set KEY=VALUE")
        try:
            overrides[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # ValueError: not TOML, or a number of thousands of digits
            overrides[key.strip()] = text.strip()
    return overrides


def _where_it_belongs(key: str) -> str:
    if key in _TABLES:
        return (
            f"name one of its settings, for example {'model.heads' if key == 'model' else 'training.warmup'}"
        )
    name = key.rpartition(".")[2]
    known = [f"training.{field}" for field in TrainingConfig.model_fields]
    known += [f"model.{field}" for field in TransformerConfig.model_fields]
    same_name = [candidate for candidate in known if candidate.endswith(f".{name}")]
    return f"did you mean {same_name[0]!r}?" if same_name else suggest(key, known)


def _merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Put nested dictionaries over each other."""
    merged = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


@dataclass(frozen=True)
class TrainingDefaults:
    """The training settings of a run, some of which depend on its number of steps."""

    given: dict[str, Any]  # by the user; they come before all defaults
    steps: int  # unless steps, epochs or minutes are given
    longest_warmup: int
    settings: dict[str, Any]  # defaults that do not depend on the number of steps
    shortest_interval: int = 100  # steps between two validations, unless the run is shorter

    def config(self, steps: int | None = None) -> TrainingConfig:
        """Return the configuration of a run of this many steps, or of the default number."""
        steps = steps or self.given.get("steps") or self.steps
        return validate(
            TrainingConfig,
            {
                "warmup": max(1, min(self.longest_warmup, steps // 10)),
                "validate_every": max(1, min(1000, max(self.shortest_interval, steps // 20), steps)),
                # In a short run, checkpoints of a model that is still improving would be averaged in.
                "average": TrainingConfig().average if steps >= SHORTEST_AVERAGED_RUN else 1,
                **self.settings,
                **self.given,
                "steps": steps,
            },
            where="[training]",
        )


def _fine_tuning_rate(given: dict[str, Any]) -> float:
    """Return the peak learning rate for a trained model; an adapter, which starts at zero, needs more."""
    return 1e-3 if given.get("adapter_rank") else 1e-4


# Translation


def choose_translation_model(
    choices: UserChoices, pairs: int, *, joint: bool
) -> TransformerConfig | RNNConfig:
    """Return the chosen model, or one whose size suits this many pairs."""
    model = choices.model()
    if model is None:
        small = pairs <= SMALL_CORPUS
        if choices.family == "rnn":
            model = PRESETS["rnn"].model if small else RNNConfig()
        else:
            model = PRESETS["small" if small else "base"].model
    chosen = choices.adjust(check_translates(model))
    if not joint and chosen.share == "all":  # the vocabularies have different sizes
        chosen = chosen.model_copy(update={"share": "target"})
    return chosen


def check_translates(model: ModelConfig) -> TransformerConfig | RNNConfig:
    """Return the model if it translates; raise a `ConfigError` otherwise."""
    if isinstance(model, TransformerConfig | RNNConfig):
        return model
    raise not_for_pairs(model.family)


def not_for_pairs(family: str) -> ConfigError:
    """Return the error for a family that cannot be trained on pairs of texts."""
    command = {"vit": "vision", "gpt": "lm", "bert": "mlm"}.get(family, "lm")
    return ConfigError(
        f"a model of family {family!r} cannot translate",
        f"choose a transformer or an rnn, or use transduce {command} train",
    )


def translation_defaults(
    choices: UserChoices, pairs: Pairs, *, is_extended: bool = False
) -> TrainingDefaults:
    """Return the training defaults for these pairs: 30 epochs, but 2,000 to 100,000 steps.

    A model is fine-tuned for 10 epochs, but 100 steps at least, with smaller batches if there is little text.
    New tokens (``is_extended``) have no old weights that the final model could be half-way to.
    """
    given = choices.training()
    copies = pairs.mixture.weights if pairs.mixture else 1
    source, target = (int((side.lengths * copies).sum()) for side in (pairs.source, pairs.target))
    settings: dict[str, Any] = {"learning_rate": 1e-3 if len(pairs) <= SMALL_CORPUS else None}
    epochs, fewest = TRANSLATION_EPOCHS, 2_000
    if choices.from_model:
        epochs, fewest = FINE_TUNING_EPOCHS, 100
        largest = TrainingConfig().max_tokens
        small = max(largest // 4, min(largest, max(source, target) // 10))
        settings = {"learning_rate": _fine_tuning_rate(given), "max_tokens": small}
        settings["start_share"] = 0.0 if is_extended else 0.5
    batches = max(source, target) / _tokens_per_batch({**settings, **given})
    per_step = math.ceil((given.get("batch_tokens") or 1) / (target / batches))
    return TrainingDefaults(
        given,
        steps=int(min(100_000, max(fewest, epochs * batches / per_step))),
        longest_warmup=4000,
        settings=settings,
    )


# Plain text


def text_defaults(choices: UserChoices, tokens: int) -> TrainingDefaults:
    """Return the training defaults for plain text: 20 epochs, but 1,000 to 100,000 steps."""
    given = choices.training()
    for name in ("r_drop", "bpe_dropout"):
        if given.get(name):
            raise ConfigError(f"training.{name} is only for translation", "remove it from the run file")
    batch = _tokens_per_batch(given)
    per_step = math.ceil((given.get("batch_tokens") or 1) / batch)
    new = 1e-3 if tokens <= SMALL_TEXT else 3e-4
    return TrainingDefaults(
        given,
        steps=int(min(100_000, max(1_000, TEXT_EPOCHS * tokens / batch / per_step))),
        longest_warmup=2000,
        settings={
            "learning_rate": _fine_tuning_rate(given) if choices.from_model else new,
            "schedule": "cosine",
            "label_smoothing": 0.0,
        },
    )


def _tokens_per_batch(given: dict[str, Any]) -> float:
    limit: int = given.get("max_tokens", TrainingConfig().max_tokens)
    return FULL_BATCH * limit


# Images


def image_defaults(choices: UserChoices, images: int) -> TrainingDefaults:
    """Return the training defaults for this many images: 30 epochs, but 1,000 to 100,000 steps."""
    given = choices.training()
    size = given.get("batch_images", TrainingConfig().batch_images)
    return TrainingDefaults(
        given,
        steps=int(min(100_000, max(1_000, IMAGE_EPOCHS * images / size))),
        longest_warmup=1000,
        settings={
            "learning_rate": _fine_tuning_rate(given) if choices.from_model else 1e-3,
            "schedule": "cosine",
            "average": 1,  # the learning rate falls to zero: the last checkpoints hardly differ
        },
        shortest_interval=50,
    )


def steps_of_epochs(data: Objective[Any], epochs: float) -> int:
    """Return the number of steps in this many epochs."""
    whole = int(epochs)
    steps = sum(len(data.steps(epoch)) for epoch in range(whole))
    return max(1, steps + round((epochs - whole) * len(data.steps(whole))))
