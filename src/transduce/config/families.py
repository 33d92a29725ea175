"""The architectures: a class for each family, with the sizes of its paper by default."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from transduce.config.attention import AttentionConfig, FullAttention
from transduce.config.settings import Count, Id, Probability, Settings


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
    attention: AttentionConfig = FullAttention()  # the kind of self-attention and its options

    @model_validator(mode="after")
    def _check(self) -> "TransformerConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ValueError(
                f"d_model {self.d_model} does not divide into {self.heads} heads: give d_k and d_v"
            )
        if self.positions == "rotary" and (self.d_k or self.d_model // self.heads) < 2:
            raise ValueError("rotary positions turn pairs of dimensions: d_k must be at least 2")
        return self

    @property
    def length_limit(self) -> int | None:
        """The longest text it can read, in tokens; ``None`` if there is no such limit."""
        limited = self.positions == "learned" or self.attention.kind == "low_rank"
        return self.max_length if limited else None

    @property
    def summary(self) -> str:
        """Its sizes, in a line."""
        kind = self.attention.kind.replace("_", "-")
        attention = "" if kind == "full" else f", {kind} attention"
        return (
            f"{self.encoder_layers}+{self.decoder_layers} layers, d_model {self.d_model}, "
            f"d_ff {self.d_ff}, {self.heads} heads{attention}"
        )


class RNNConfig(Settings):
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


class GPTConfig(Settings):
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
    norm: Literal["post", "pre"] = "pre"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_length: Count = 1024  # the context: so many tokens at a time

    @model_validator(mode="after")
    def _check(self) -> "GPTConfig":
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


class BERTConfig(Settings):
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
    norm: Literal["post", "pre"] = "post"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-12
    max_length: Count = 512  # tokens, [CLS] and [SEP] included
    segments: Count = 2  # kinds of text that stand side by side: a question and its answer, say
    masked_head: bool = True  # says what a [MASK] stands for
    pooler: bool = False  # one vector for the whole text
    classes: list[str] = Field(default_factory=list)  # of which a text is one; this needs the pooler

    @model_validator(mode="after")
    def _check(self) -> "BERTConfig":
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
    | Annotated[RNNConfig, Tag("rnn")]
    | Annotated[GPTConfig, Tag("gpt")]
    | Annotated[BERTConfig, Tag("bert")]
    | Annotated[ViTConfig, Tag("vit")],
    Discriminator(_family_of),
]
