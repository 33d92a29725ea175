"""The configuration of every model family: the Transformer, its vocabulary, and the union of all families."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from transduce.config import shared_fields as shared
from transduce.config.attention import AttentionConfig, FullAttention
from transduce.config.bert import BERTConfig
from transduce.config.explanation import members, suggest
from transduce.config.gpt import GPTConfig
from transduce.config.rnn import RNNConfig
from transduce.config.settings import Count, Id, Settings
from transduce.config.vit import ViTConfig
from transduce.errors import ConfigError


class Vocabulary(Settings):
    """The sizes of a model's vocabularies and its special tokens."""

    source: Count = Field(description="Number of source tokens.")
    target: Count = Field(description="Number of target tokens.")
    pad: Id = Field(default=0, description="Token that fills up shorter rows of a batch.")
    bos: Id = Field(default=1, description="Token with which a target begins.")
    eos: Id = Field(default=2, description="Token with which a source or target ends.")

    @model_validator(mode="after")
    def _check(self) -> "Vocabulary":
        for name, token in (("pad", self.pad), ("bos", self.bos), ("eos", self.eos)):
            if token >= self.target or (name == "pad" and token >= self.source):
                raise ValueError(
                    f"{name} is token {token}, which is not in the vocabulary; choose a smaller number"
                )
        # GPT-2's vocabulary has a single special token; that is no problem, because GPT masks no padding.
        if self.pad == self.eos and self.pad != self.bos:
            raise ValueError(
                f"pad and eos are both token {self.pad}, which would be masked; choose another pad"
            )
        return self


class TransformerConfig(Settings):
    """The Transformer: by default, the paper's base model (Table 3)."""

    family: Literal["transformer"] = Field(default="transformer", description="Name of the family.")
    encoder_layers: shared.EncoderLayers = 6
    decoder_layers: shared.DecoderLayers = 6
    d_model: shared.ModelWidth = 512
    d_ff: shared.FeedForwardWidth = 2048
    heads: shared.Heads = 8
    d_k: shared.KeyWidth = None
    d_v: shared.ValueWidth = None
    dropout: shared.Dropout = 0.1
    attention_dropout: shared.AttentionDropout = 0.0
    activation_dropout: shared.ActivationDropout = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = Field(
        default="relu", description="Activation of the feed-forward networks."
    )
    normalization: Literal["layer", "rms"] = Field(
        default="layer", description="Kind of norm: layer norm, or division by the root mean square."
    )
    norm: shared.Norm = "post"
    encoder_norm: Literal["post", "pre"] | None = Field(
        default=None, description="The same for the encoder, if its norms are not where the decoder's are."
    )
    norm_epsilon: shared.NormEpsilon = 1e-5
    final_norm: bool | None = Field(
        default=None,
        description="Whether encoder and decoder end with a layer norm; if unset, with norm = 'pre' only.",
    )
    bias: bool = Field(default=True, description="Whether linear layers and layer norms have biases.")
    decoder: Literal["attention", "ssru"] = Field(
        default="attention",
        description="How the decoder reads its past: by self-attention, or by a recurrent unit (SSRU), which "
        "is faster.",
    )
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = Field(
        default="sinusoidal", description="Kind of positional encoding."
    )
    sine_layout: Literal["interleaved", "halves"] = Field(
        default="interleaved",
        description="Order of sinusoidal positions: sines and cosines alternate, or all sines come first.",
    )
    sine_spacing: Literal["paper", "endpoint"] = Field(
        default="paper",
        description="Wavelengths of sinusoidal positions: the longest is shorter than 10000 · 2π, as in the "
        "paper, or has exactly that length, as in tensor2tensor, fairseq and Marian.",
    )
    first_position: Id = Field(default=0, description="Number of the first of sinusoidal positions.")
    max_length: Count = Field(
        default=1024,
        description="Longest text in tokens, if positions are learned or attention is low-rank.",
    )
    share: shared.SharedEmbeddings = "all"
    scale_embeddings: bool = Field(default=True, description="Whether embeddings are multiplied by √d_model.")
    embedding_norm: bool = Field(
        default=False, description="Whether a layer norm follows embeddings and positions."
    )
    output_bias: bool = Field(default=False, description="Whether the output layer has a bias.")
    fixed_padding: bool = Field(
        default=False,
        description="Whether training leaves the embedding and the output bias of the padding token as they "
        "are, which is right for one that an import has appended.",
    )
    mask_padding: bool = Field(
        default=True,
        description="Whether padding is hidden from attention; without, a result depends on its batch.",
    )
    source_factors: shared.SourceFactors = Field(default=[])
    attention: AttentionConfig = Field(
        default=FullAttention(), description="Kind of self-attention and its options, [model.attention]."
    )

    @model_validator(mode="after")
    def _check(self) -> "TransformerConfig":
        if self.d_k is None or self.d_v is None:
            shared.check_heads(self.d_model, self.heads, remedy="set d_k and d_v")
        if self.positions == "rotary" and (self.d_k or self.d_model // self.heads) < 2:
            raise ValueError("rotary positions rotate pairs of dimensions; set d_k to 2 or more")
        if not self.bias and self.attention.kind != "full":
            raise ValueError("bias = false needs full attention; set bias = true")
        if self.d_model % 2 and self.sine_layout == "halves":
            raise ValueError(f"d_model {self.d_model} has no halves; set sine_layout = 'interleaved'")
        if self.d_model < 4 and self.sine_spacing == "endpoint":
            raise ValueError("sine_spacing = 'endpoint' needs a d_model of 4 or more")
        return self

    @property
    def has_final_norm(self) -> bool:
        """Whether encoder and decoder end with a layer norm."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    @property
    def length_limit(self) -> int | None:
        """The longest text the model can read, in tokens; ``None`` if it is unlimited."""
        limited = self.positions == "learned" or self.attention.kind == "low_rank"
        return self.max_length if limited else None

    @property
    def summary(self) -> str:
        """The model's sizes, in one line."""
        kind = self.attention.kind.replace("_", "-")
        attention = "" if kind == "full" else f", {kind} attention"
        attention += ", SSRU decoder" if self.decoder == "ssru" else ""
        return (
            f"{self.encoder_layers}+{self.decoder_layers} layers, d_model {self.d_model}, "
            f"d_ff {self.d_ff}, {self.heads} heads{attention}"
        )


def check_family(name: object) -> None:
    """Raise an error if no family has this name."""
    known = [str(member.model_fields["family"].default) for member in members(ModelConfig)]
    if name not in known:
        raise ConfigError(f"there is no family {name!r}", suggest(name, known))


def _family_of(data: object) -> object:
    """Return the family that a table or object names; a table without one describes a Transformer."""
    return (
        data.get("family", "transformer")
        if isinstance(data, dict)
        else getattr(data, "family", "transformer")
    )


# A new family is a class, a member here and a case in `transduce.models.build`.
ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[RNNConfig, Tag("rnn")]
    | Annotated[GPTConfig, Tag("gpt")]
    | Annotated[BERTConfig, Tag("bert")]
    | Annotated[ViTConfig, Tag("vit")],
    Discriminator(_family_of),
]
