"""The decoder-only family."""

from typing import Literal

from pydantic import Field, model_validator

from transduce.config.settings import Count, Epsilon, Probability, Settings


class GPTConfig(Settings):
    """The decoder-only language model: by default, the smallest GPT-2 (Radford et al., 2019)."""

    family: Literal["gpt"] = Field(default="gpt", description="Name of the family.")
    layers: Count = Field(default=12, description="Number of layers.")
    d_model: Count = Field(default=768, description="Width of the model.")
    d_ff: Count = Field(default=3072, description="Width of the feed-forward networks.")
    heads: Count = Field(default=12, description="Number of attention heads.")
    dropout: Probability = Field(
        default=0.1, description="Dropout on the output of every sub-layer and on the embeddings."
    )
    attention_dropout: Probability = Field(default=0.1, description="Dropout on attention weights.")
    activation_dropout: Probability = Field(
        default=0.0, description="Dropout inside the feed-forward networks."
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = Field(
        default="gelu_tanh", description="Activation of the feed-forward networks."
    )
    norm: Literal["post", "pre"] = Field(
        default="pre", description="Layer norm after or before each sub-layer."
    )
    norm_epsilon: Epsilon = Field(default=1e-5, description="Epsilon of the layer norms.")
    max_length: Count = Field(default=1024, description="Context size: longest sequence in tokens.")

    @model_validator(mode="after")
    def _check(self) -> "GPTConfig":
        check_heads(self.d_model, self.heads)
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


def check_heads(d_model: int, heads: int) -> None:
    """Refuse a width that cannot be divided among the heads."""
    if d_model % heads:
        raise ValueError(f"d_model {d_model} is not divisible by {heads} heads; choose other sizes")
