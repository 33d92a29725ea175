"""Configuration: data, validated once at the door, never changed after. Defaults are the paper's."""

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from transduce.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Id = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """What all configuration has in common: no unknown keys, no silent conversion, no mutation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)


class Vocabulary(Settings):
    """What the tokenizer decides about a model: how many tokens, and which of them are special."""

    source: Count
    target: Count
    pad: Id = 0
    bos: Id = 1
    eos: Id = 2

    @model_validator(mode="after")
    def _check(self) -> "Vocabulary":
        for name, token in (("pad", self.pad), ("bos", self.bos), ("eos", self.eos)):
            if token >= self.target or (name == "pad" and token >= self.source):
                raise ValueError(f"{name} is token {token}, which the vocabulary does not have")
        if self.pad in (self.bos, self.eos):
            raise ValueError(f"pad is token {self.pad}, but so is another special token: it would be masked")
        return self


class TransformerConfig(Settings):
    """The architecture: by default, the paper's base model (Table 3)."""

    family: Literal["transformer"] = "transformer"
    encoder_layers: Count = 6
    decoder_layers: Count = 6
    d_model: Count = 512
    d_ff: Count = 2048
    heads: Count = 8
    d_k: Count | None = None  # d_model / heads
    d_v: Count | None = None  # d_model / heads
    dropout: Probability = 0.1  # on every sub-layer's output, and on embeddings + positions
    attention_dropout: Probability = 0.0  # on attention weights
    activation_dropout: Probability = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    norm: Literal["post", "pre"] = "post"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    max_length: Count = 1024  # of learned positions; the others have no end
    share: Literal["all", "target", "none"] = "all"  # which of source, target and output share one matrix

    @model_validator(mode="after")
    def _check(self) -> "TransformerConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ValueError(
                f"d_model {self.d_model} does not divide into {self.heads} heads: give d_k and d_v"
            )
        if self.positions == "rotary" and (self.d_k or self.d_model // self.heads) < 2:
            raise ValueError("rotary positions turn pairs of dimensions: d_k must be at least 2")
        return self


class TrainingConfig(Settings):
    """How a model is trained: by default, as the paper trained a row of Table 3."""

    steps: Count = 100_000
    warmup: Count = 4_000
    label_smoothing: Probability = 0.1
    schedule: Literal["inverse_sqrt", "cosine", "linear", "plateau"] = "inverse_sqrt"  # after warm-up
    learning_rate: Annotated[float, Field(gt=0, lt=1)] | None = None  # at its peak; the paper's if not given
    max_tokens: Count = 4096  # in a batch that is computed at once
    batch_tokens: Count | None = None  # real target tokens in a step; a single batch if not given
    clip: Annotated[float, Field(ge=0)] = 1.0  # the gradient's largest norm; 0 for none
    r_drop: Annotated[float, Field(ge=0)] = 0.0  # weight of the divergence between two passes; 0 for one pass
    bpe_dropout: Probability = 0.0  # of each merge, anew each time a pair is read
    freeze: list[str] = []  # parts of the model that stay as they are, such as "encoder"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of matrix products; auto: the faster
    parallel: Literal["ddp", "fsdp"] = "ddp"  # with several processes: whole models, or one model in shards
    seed: Id = 1
    minutes: Annotated[float, Field(gt=0)] | None = None  # the run ends then, if its steps have not
    validate_every: Count = 500  # steps
    patience: Id = 0  # validations without progress before stopping; 0 for never
    keep: Count = 5  # checkpoints
    average: Count = 5  # of them, in the final model
    ema: Probability = 0.0  # decay of a moving average of the weights, used instead of that; 0 for none


class RunConfig(Settings):
    """A model and how it is trained: what a run file holds."""

    model: TransformerConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()


PRESETS: dict[str, RunConfig] = {
    "tiny": RunConfig(
        model=TransformerConfig(encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, heads=4)
    ),
    "small": RunConfig(
        model=TransformerConfig(encoder_layers=3, decoder_layers=3, d_model=256, d_ff=1024, heads=4)
    ),
    "base": RunConfig(),
    # Table 3: each row changes this about base.
    "A1": RunConfig(model=TransformerConfig(heads=1)),
    "A2": RunConfig(model=TransformerConfig(heads=4)),
    "A3": RunConfig(model=TransformerConfig(heads=16)),
    "A4": RunConfig(model=TransformerConfig(heads=32)),
    "B1": RunConfig(model=TransformerConfig(d_k=16)),
    "B2": RunConfig(model=TransformerConfig(d_k=32)),
    "C1": RunConfig(model=TransformerConfig(encoder_layers=2, decoder_layers=2)),
    "C2": RunConfig(model=TransformerConfig(encoder_layers=4, decoder_layers=4)),
    "C3": RunConfig(model=TransformerConfig(encoder_layers=8, decoder_layers=8)),
    "C4": RunConfig(model=TransformerConfig(d_model=256)),
    "C5": RunConfig(model=TransformerConfig(d_model=1024)),
    "C6": RunConfig(model=TransformerConfig(d_ff=1024)),
    "C7": RunConfig(model=TransformerConfig(d_ff=4096)),
    "D1": RunConfig(model=TransformerConfig(dropout=0.0)),
    "D2": RunConfig(model=TransformerConfig(dropout=0.2)),
    "D3": RunConfig(training=TrainingConfig(label_smoothing=0.0)),
    "D4": RunConfig(training=TrainingConfig(label_smoothing=0.2)),
    "E": RunConfig(model=TransformerConfig(positions="learned")),
    "big": RunConfig(
        model=TransformerConfig(d_model=1024, d_ff=4096, heads=16, dropout=0.3),
        training=TrainingConfig(steps=300_000),
    ),
}


def preset(name: str) -> RunConfig:
    """A configuration by name: ``tiny``, ``small``, ``base``, ``big``, or ``A1`` … ``E`` of Table 3."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}", _suggest(name, PRESETS))
    return PRESETS[name]


def read_toml(path: str | Path) -> RunConfig:
    """A run file. Its ``preset`` (``base`` if none) is where it starts; its tables change that."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}", "save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", "correct it there") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path") from error
    return resolve(data, where=str(path))


def write_toml(config: RunConfig, path: str | Path) -> None:
    """Write a run file that `read_toml` reads back as the same configuration."""
    path = Path(path)
    new = path.with_name(f".{path.name}.new")  # renamed when it is whole: a killed process leaves the old one
    try:
        with new.open("wb") as file:
            tomli_w.dump(config.model_dump(exclude_none=True), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "choose another place") from error


def resolve(data: Mapping[str, Any], *, where: str) -> RunConfig:
    """Put the tables of ``data`` over its preset. ``where`` names the place in errors."""
    tables = dict(data)
    try:
        named = "preset" in tables
        begin = preset(tables.pop("preset", "base"))
        # Only what was chosen counts as set: the rest may yet be chosen to suit the text.
        start = {
            **begin.model_dump(exclude_unset=True),
            **({"model": begin.model.model_dump()} if named else {}),
        }
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.problem}", error.remedy) from None
    for name, table in tables.items():
        inherited = start.get(name, {}) if name in RunConfig.model_fields else None
        start[name] = (
            {**inherited, **table} if isinstance(inherited, dict) and isinstance(table, dict) else table
        )
    return validate(RunConfig, start, where=where)


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(kind: type[SettingsT], data: object, *, where: str) -> SettingsT:
    """``data`` as settings of this kind, or a `ConfigError` that says what is wrong with it in one line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"]]
        key = ".".join(path)
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: unknown key {key!r}", _where_it_belongs(kind, path)) from None
        if first["type"] == "value_error":  # raised by a validator above: its words are the message
            said = str(first["ctx"]["error"])
            raise ConfigError(f"{where}: {f'{key}: ' if key else ''}{said}", "correct it there") from None
        said = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        if first["type"] == "model_type":
            said = f"must be a table, [{key}]"
        given = "" if first["type"] == "missing" else f" = {first['input']!r}"
        raise ConfigError(f"{where}: {key}{given}: {said}", "correct it there") from None


def _where_it_belongs(kind: type[Settings], path: list[str]) -> str:
    """The table that has this very key, or else the nearest key of the table it was found in."""
    tables = {
        name: field.annotation.model_fields
        for name, field in kind.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
    }
    for table, keys in tables.items():
        if path[-1] in keys:
            return f"it belongs in [{table}]"
    top = [*kind.model_fields, "preset"] if kind is RunConfig else list(kind.model_fields)
    return _suggest(path[-1], tables[path[0]] if len(path) > 1 and path[0] in tables else top)


def _suggest(name: object, known: Iterable[str]) -> str:
    # Presets are written A1 and base: the case is not what one remembers.
    folded = {candidate.casefold(): candidate for candidate in known}
    nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"did you mean {folded[nearest[0]]!r}?" if nearest else f"known: {', '.join(known)}"
