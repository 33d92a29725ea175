"""Configuration: data, validated once at the door, never changed after. Defaults are the paper's."""

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import ErrorDetails

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
        # A vocabulary with a single special token, as GPT-2's, has no other choice, and GPT masks nothing.
        if self.pad in (self.bos, self.eos) and not self.pad == self.bos == self.eos:
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
    max_length: Count = 1024  # of learned positions and of low-rank attention; the others have no end
    share: Literal["all", "target", "none"] = "all"  # which of source, target and output share one matrix
    attention: Literal["full", "window", "low_rank", "hashed"] = "full"  # of a sequence to itself
    window_radius: Count = 128  # window: positions on either side
    global_tokens: Id = 0  # window: the first positions, which see all and are seen by all
    rank: Count = 128  # low_rank: mixtures of positions
    hash_buckets: Count = 16  # hashed: an even number, or 1
    hash_rounds: Count = 2  # hashed: how often, each time by other directions
    hash_chunk: Count = 64  # hashed: positions of a bucket that are looked at together

    @model_validator(mode="after")
    def _check(self) -> "TransformerConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ValueError(
                f"d_model {self.d_model} does not divide into {self.heads} heads: give d_k and d_v"
            )
        if self.positions == "rotary" and (self.d_k or self.d_model // self.heads) < 2:
            raise ValueError("rotary positions turn pairs of dimensions: d_k must be at least 2")
        if self.hash_buckets > 1 and self.hash_buckets % 2:
            raise ValueError(f"hash_buckets must be even, or 1, not {self.hash_buckets}")
        return self

    @property
    def length_limit(self) -> int | None:
        """The longest text it can read, in tokens; ``None`` if there is no such limit."""
        limited = self.positions == "learned" or self.attention == "low_rank"
        return self.max_length if limited else None

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        attention = "" if self.attention == "full" else f", {self.attention.replace('_', '-')} attention"
        return (
            f"{self.encoder_layers}+{self.decoder_layers} layers, d_model {self.d_model}, "
            f"d_ff {self.d_ff}, {self.heads} heads{attention}"
        )


class RnnConfig(Settings):
    """The sequence-to-sequence RNN, with attention (Bahdanau et al., 2015; Luong et al., 2015) or without."""

    family: Literal["rnn"] = "rnn"
    cell: Literal["lstm", "gru"] = "lstm"
    encoder_layers: Count = 2
    decoder_layers: Count = 2
    d_model: Count = 512  # of an embedding, and of what the output layer reads
    d_hidden: Count = 512  # of a state, in each direction
    bidirectional: bool = True  # the encoder
    attention: Literal["additive", "multiplicative", "none"] = "additive"
    dropout: Probability = 0.2  # on embeddings, between layers and before the output layer
    share: Literal["all", "target", "none"] = "all"  # which of source, target and output share one matrix

    @property
    def length_limit(self) -> int | None:
        """There is no end to what it can read."""
        return None

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        attention = "no" if self.attention == "none" else self.attention
        return (
            f"{self.encoder_layers}+{self.decoder_layers} layers of {self.cell.upper()}, the encoder in "
            f"{'both directions' if self.bidirectional else 'one direction'}, d_model {self.d_model}, "
            f"d_hidden {self.d_hidden}, {attention} attention"
        )


class GptConfig(Settings):
    """The decoder-only language model: by default, the smallest GPT-2 (Radford et al., 2019)."""

    family: Literal["gpt"] = "gpt"
    layers: Count = 12
    d_model: Count = 768
    d_ff: Count = 3072
    heads: Count = 12
    dropout: Probability = 0.1  # on every sub-layer's output, and on embeddings + positions
    attention_dropout: Probability = 0.1  # on attention weights
    activation_dropout: Probability = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu_tanh"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_length: Count = 1024  # the context: so many tokens at a time

    @model_validator(mode="after")
    def _check(self) -> "GptConfig":
        _check_heads(self.d_model, self.heads)
        return self

    @property
    def length_limit(self) -> int | None:
        """The longest text it can read, in tokens."""
        return self.max_length

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        return (
            f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads, "
            f"a context of {self.max_length}"
        )


class BertConfig(Settings):
    """The encoder-only model of masked text: by default, BERT base (Devlin et al., 2019)."""

    family: Literal["bert"] = "bert"
    layers: Count = 12
    d_model: Count = 768
    d_ff: Count = 3072
    heads: Count = 12
    dropout: Probability = 0.1  # on every sub-layer's output, and on the embeddings
    attention_dropout: Probability = 0.1  # on attention weights
    activation_dropout: Probability = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-12
    max_length: Count = 512  # tokens, [CLS] and [SEP] included
    segments: Count = 2  # kinds of text that stand side by side: a question and its answer, say
    masked_head: bool = True  # says what a [MASK] stands for
    pooler: bool = False  # one vector for the whole text
    classes: list[str] = []  # of which a text is one; this needs the pooler

    @model_validator(mode="after")
    def _check(self) -> "BertConfig":
        _check_heads(self.d_model, self.heads)
        if self.classes and not self.pooler:
            raise ValueError("classes are told from the pooled text: set pooler = true")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name")
        return self

    @property
    def length_limit(self) -> int | None:
        """The longest text it can read, in tokens."""
        return self.max_length

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return (
            f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads, "
            f"texts of {self.max_length} tokens{classes}"
        )


def _check_heads(d_model: int, heads: int) -> None:
    if d_model % heads:
        raise ValueError(f"d_model {d_model} does not divide into {heads} heads")


class ViTConfig(Settings):
    """The Vision Transformer (Dosovitskiy et al., 2021): an image in, one of some classes out.

    What is ``None`` is taken from the images that a model is trained on.
    """

    family: Literal["vit"] = "vit"
    image_size: Count | list[Count] | None = None  # pixels: height and width, or both at once
    patch_size: Count | None = None  # pixels on a side
    channels: Count | None = None  # 1 for grey, 3 for colours
    classes: Count | list[str] | None = None  # their names, or how many there are
    mean: list[float] | None = None  # of each channel, of pixels from 0 to 1; subtracted from them
    std: list[Annotated[float, Field(gt=0)]] | None = None  # which they are divided by then
    layers: Count = 6
    d_model: Count = 128
    d_ff: Count = 256
    heads: Count = 4
    d_k: Count | None = None  # d_model / heads
    d_v: Count | None = None  # d_model / heads
    dropout: Probability = 0.1  # on every sub-layer's output, and on patches + positions
    attention_dropout: Probability = 0.0  # on attention weights
    activation_dropout: Probability = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "swiglu"] = "gelu"
    norm: Literal["post", "pre"] = "pre"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    qkv_bias: bool = True  # on queries, keys and values
    pooling: Literal["class", "mean"] = "class"  # what the head reads: a token of its own, or the mean
    positions: Literal["learned", "sinusoidal"] = "learned"

    @model_validator(mode="after")
    def _check(self) -> "ViTConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ValueError(
                f"d_model {self.d_model} does not divide into {self.heads} heads: give d_k and d_v"
            )
        if isinstance(self.image_size, list) and len(self.image_size) != 2:
            raise ValueError("image_size is a height and a width, or one number for both")
        if self.image_size and self.patch_size and any(side % self.patch_size for side in self.size):
            height, width = self.size
            raise ValueError(f"images of {height}×{width} do not divide into patches of {self.patch_size}")
        if isinstance(self.classes, list) and len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name")
        if self.classes is not None and len(self.class_names) < 2:
            raise ValueError("there must be two classes at least")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and self.channels and len(values) != self.channels:
                raise ValueError(f"{name} has {len(values)} numbers, for {self.channels} channels")
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of an image, in pixels; it must be known."""
        if self.image_size is None:
            raise ValueError("image_size is not known yet")
        sides = [self.image_size] * 2 if isinstance(self.image_size, int) else self.image_size
        return sides[0], sides[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches; both sizes must be known."""
        height, width = self.size
        if self.patch_size is None:
            raise ValueError("patch_size is not known yet")
        return height // self.patch_size, width // self.patch_size

    @property
    def class_names(self) -> list[str]:
        """Numbers, if there are no names."""
        if isinstance(self.classes, int):
            return [str(number) for number in range(self.classes)]
        return self.classes or []

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        return f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads"


def _family_of(data: object) -> object:
    """Files from before there were families do not name theirs."""
    return (
        data.get("family", "transformer")
        if isinstance(data, dict)
        else getattr(data, "family", "transformer")
    )


# A new family is a class above, a member here and a case in `transduce.models.build`.
ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[RnnConfig, Tag("rnn")]
    | Annotated[GptConfig, Tag("gpt")]
    | Annotated[BertConfig, Tag("bert")]
    | Annotated[ViTConfig, Tag("vit")],
    Discriminator(_family_of),
]


class TrainingConfig(Settings):
    """How a model is trained: by default, as the paper trained a row of Table 3."""

    steps: Count = 100_000
    warmup: Count = 4_000
    label_smoothing: Probability = 0.1
    schedule: Literal["inverse_sqrt", "cosine", "linear", "plateau"] = "inverse_sqrt"  # after warm-up
    learning_rate: Annotated[float, Field(gt=0, lt=1)] | None = None  # at its peak; the paper's if not given
    max_tokens: Count = 4096  # in a batch that is computed at once
    batch_tokens: Count | None = None  # real target tokens in a step; a single batch if not given
    batch_images: Count = 128  # in a step of a model that reads images
    crop: Id = 0  # pixels added around an image, of which a part of its size is cut at random
    flip: bool = False  # half of the images, left to right
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

    model: ModelConfig = TransformerConfig()
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
    # What the Transformer grew out of, about as large as small.
    "rnn": RunConfig(model=RnnConfig(d_model=256, d_hidden=256)),
    "rnn-plain": RunConfig(model=RnnConfig(d_model=256, d_hidden=256, attention="none")),
    # What grew out of it: the decoder alone, and the encoder alone.
    "gpt": RunConfig(model=GptConfig()),
    "gpt-small": RunConfig(model=GptConfig(layers=4, d_model=256, d_ff=1024, heads=4, max_length=256)),
    "bert": RunConfig(model=BertConfig()),
    "bert-small": RunConfig(model=BertConfig(layers=4, d_model=256, d_ff=1024, heads=4, max_length=128)),
}


def check_family(name: object) -> None:
    """Complain of a family that there is not."""
    known = [str(member.model_fields["family"].default) for member in _members(ModelConfig)]
    if name not in known:
        raise ConfigError(f"there is no family {name!r}", _suggest(name, known))


def preset(name: str) -> RunConfig:
    """A configuration by name: ``small``, ``base``, or ``A1`` … ``E`` of Table 3, ``rnn``, among others."""
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
        if named:
            _check_family(begin.model.family, tables.get("model"))
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


def _check_family(family: str, table: object) -> None:
    """The sizes of a preset are those of its family."""
    wanted = table.get("family", family) if isinstance(table, dict) else family
    if wanted != family:
        raise ConfigError(
            f"the preset is a {family}, but model.family = {wanted!r}",
            "choose a preset of that family, or leave the preset out",
        )


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(kind: type[SettingsT], data: object, *, where: str) -> SettingsT:
    """``data`` as settings of this kind, or a `ConfigError` that says what is wrong with it in one line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        # A key that is out of place says more than a value that is: families share the names of some keys.
        found = error.errors(include_url=False)
        unknown = [one for one in found if one["type"] == "extra_forbidden"]
        problem, remedy = _explain(kind, (unknown or found)[0])
        raise ConfigError(f"{where}: {problem}", remedy) from None


def _explain(kind: type[Settings], first: ErrorDetails) -> tuple[str, str]:
    """What is wrong, and what to do about it."""
    path, table = _locate(kind, first["loc"])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}", _where_it_belongs(kind, path, table)
    if first["type"] == "value_error":  # raised by a validator above: its words are the message
        return f"{f'{key}: ' if key else ''}{first['ctx']['error']}", "correct it there"
    if first["type"] == "union_tag_invalid":
        known = [tag.strip("' ") for tag in first["ctx"]["expected_tags"].split(",")]
        return f"{key}: there is no family {first['ctx']['tag']!r}", _suggest(first["ctx"]["tag"], known)
    said = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    if first["type"] == "model_type":
        said = f"must be a table, [{key}]"
    given = "" if first["type"] == "missing" else f" = {first['input']!r}"
    return f"{key}{given}: {said}", "correct it there"


def _locate(kind: type[Settings], location: tuple[int | str, ...]) -> tuple[list[str], type[Settings]]:
    """The keys that lead to the place of an error, and the settings that the last of them should belong to.

    Where a table may be of several families, its location also names the one that was meant.
    """
    path = [str(part) for part in location]
    if len(path) < 2 or path[0] not in kind.model_fields:
        return path, kind
    members = _members(kind.model_fields[path[0]].annotation)
    if len(members) > 1:
        meant = path.pop(1)
        members = [one for one in members if one.model_fields["family"].default == meant]
    return path, members[0] if members else kind


def _members(annotation: object) -> list[type[Settings]]:
    """The settings that a field may hold: one kind, or one for each member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [member for part in get_args(annotation) for member in _members(part)]


def _where_it_belongs(kind: type[Settings], path: list[str], found_in: type[Settings]) -> str:
    """The table or the family that has this very key, or else the nearest key of where it was found."""
    *_, key = path
    for table, field in kind.model_fields.items():
        owners = [member for member in _members(field.annotation) if key in member.model_fields]
        if owners and table != path[0]:
            return f"it belongs in [{table}]"
        if owners and len(path) > 1:
            return f"it is an option of family = {owners[0].model_fields['family'].default!r}"
    known = list(found_in.model_fields)
    return _suggest(key, [*known, "preset"] if found_in is RunConfig else known)


def _suggest(name: object, known: Iterable[str]) -> str:
    # Presets are written A1 and base: the case is not what one remembers.
    folded = {candidate.casefold(): candidate for candidate in known}
    nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"did you mean {folded[nearest[0]]!r}?" if nearest else f"known: {', '.join(known)}"
