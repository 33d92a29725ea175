"""The decoder-only family."""

from typing import Literal

from pydantic import Field, model_validator

from transduce.config import shared_fields as shared
from transduce.config.settings import Count, Positive, Settings, Width


class GPTConfig(Settings):
    """The decoder-only language model: by default, the smallest GPT-2 (Radford et al., 2019).

    With rotary positions, RMS norms, SwiGLU and no biases it has the shape of Llama (Touvron et al., 2023).
    """

    family: Literal["gpt"] = Field(default="gpt", description="Name of the family.")
    layers: shared.Layers = 12
    d_model: shared.ModelWidth = 768
    d_ff: shared.FeedForwardWidth = 3072
    heads: shared.Heads = 12
    key_value_heads: Width | None = Field(
        default=None,
        description="Number of heads of keys and values, which groups of heads share; heads if unset.",
    )
    d_k: shared.KeyWidth = None
    d_v: shared.ValueWidth = None
    dropout: shared.Dropout = 0.1
    attention_dropout: shared.AttentionDropout = 0.1
    activation_dropout: shared.ActivationDropout = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = Field(
        default="gelu_tanh", description="Activation of the feed-forward networks."
    )
    positions: Literal["learned", "rotary", "sinusoidal", "none"] = Field(
        default="learned", description="Kind of positional encoding."
    )
    rotary_base: Positive = Field(
        default=10_000.0, description="Base of the wavelengths of rotary positions; larger for longer texts."
    )
    normalization: Literal["layer", "rms"] = Field(
        default="layer", description="Kind of norm: layer norm, or division by the root mean square."
    )
    norm: shared.Norm = "pre"
    norm_epsilon: shared.NormEpsilon = 1e-5
    bias: bool = Field(default=True, description="Whether linear layers and layer norms have biases.")
    qkv_bias: bool | None = Field(
        default=None,
        description="Whether the maps to queries, keys and values have biases; if unset, as all others.",
    )
    share_output: bool = Field(
        default=True, description="Whether input embeddings and the output layer share one matrix."
    )
    max_length: Count = Field(default=1024, description="Context size: longest sequence in tokens.")

    @model_validator(mode="after")
    def _check(self) -> "GPTConfig":
        if self.d_k is None or self.d_v is None:
            shared.check_heads(self.d_model, self.heads, remedy="set d_k and d_v")
        if self.positions == "rotary" and self.key_width < 2:
            raise ValueError("rotary positions rotate pairs of dimensions; set d_k to 2 or more")
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            raise ValueError(
                f"{self.heads} heads cannot share {self.key_value_heads} heads of keys and values; "
                "set key_value_heads to a divisor of heads"
            )
        return self

    @property
    def key_width(self) -> int:
        """The width of queries and keys of one head."""
        return self.d_k or self.d_model // self.heads

    @property
    def length_limit(self) -> int | None:
        """The longest text the model can read, in tokens."""
        return self.max_length

    @property
    def summary(self) -> str:
        """The model's sizes, in one line."""
        return (
            f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads, "
            f"context of {self.max_length} tokens"
        )
