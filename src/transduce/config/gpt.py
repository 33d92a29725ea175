"""The decoder-only family."""

from typing import Literal

from pydantic import Field, model_validator

from transduce.config import shared_fields as shared
from transduce.config.settings import Count, Settings


class GPTConfig(Settings):
    """The decoder-only language model: by default, the smallest GPT-2 (Radford et al., 2019)."""

    family: Literal["gpt"] = Field(default="gpt", description="Name of the family.")
    layers: shared.Layers = 12
    d_model: shared.ModelWidth = 768
    d_ff: shared.FeedForwardWidth = 3072
    heads: shared.Heads = 12
    dropout: shared.Dropout = 0.1
    attention_dropout: shared.AttentionDropout = 0.1
    activation_dropout: shared.ActivationDropout = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = Field(
        default="gelu_tanh", description="Activation of the feed-forward networks."
    )
    norm: shared.Norm = "pre"
    norm_epsilon: shared.NormEpsilon = 1e-5
    max_length: Count = Field(default=1024, description="Context size: longest sequence in tokens.")

    @model_validator(mode="after")
    def _check(self) -> "GPTConfig":
        shared.check_heads(self.d_model, self.heads)
        return self

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
