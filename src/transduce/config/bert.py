"""The encoder-only family."""

from typing import Literal

from pydantic import Field, model_validator

from transduce.config import shared_fields as shared
from transduce.config.settings import Count, Settings


class BERTConfig(Settings):
    """The masked language model: by default, BERT base (Devlin et al., 2019)."""

    family: Literal["bert"] = Field(default="bert", description="Name of the family.")
    layers: shared.Layers = 12
    d_model: shared.ModelWidth = 768
    d_ff: shared.FeedForwardWidth = 3072
    heads: shared.Heads = 12
    dropout: shared.Dropout = 0.1
    attention_dropout: shared.AttentionDropout = 0.1
    activation_dropout: shared.ActivationDropout = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = Field(
        default="gelu", description="Activation of the feed-forward networks."
    )
    norm: shared.Norm = "post"
    norm_epsilon: shared.NormEpsilon = 1e-12
    max_length: Count = Field(default=512, description="Longest text in tokens, [CLS] and [SEP] included.")
    segments: Count = Field(default=2, description="Number of segments, such as a question and its answer.")
    masked_head: bool = Field(
        default=True, description="Whether the model has a head that predicts masked tokens."
    )
    pooler: bool = Field(default=False, description="Whether the model computes one vector for a whole text.")
    classes: list[str] = Field(
        default_factory=list, description="Names of the classes of a text classifier, which needs the pooler."
    )

    pooling: Literal["mean", "cls", "max", "mean_sqrt_len", "pooler"] = Field(
        default="mean",
        description="The vector of a text: the mean over its tokens, the state of [CLS], the maximum in each "
        "dimension, the sum divided by the square root of the length, or the output of the pooler.",
    )
    normalize: bool = Field(default=False, description="Whether the vector of a text has length 1.")
    embedding_length: Count | None = Field(
        default=None,
        description="Number of tokens of a text from which its vector is computed, [CLS] and [SEP] included; "
        "max_length if unset.",
    )

    @model_validator(mode="after")
    def _check(self) -> "BERTConfig":
        shared.check_heads(self.d_model, self.heads)
        if self.classes and not self.pooler:
            raise ValueError("classes need the pooler; set pooler = true")
        if self.pooling == "pooler" and not self.pooler:
            raise ValueError("pooling = 'pooler' needs the pooler; set pooler = true")
        if self.embedding_length is not None and not 2 <= self.embedding_length <= self.max_length:
            raise ValueError(
                f"embedding_length is {self.embedding_length}; choose a number from 2 to {self.max_length}"
            )
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name; rename one")
        return self

    @property
    def length_limit(self) -> int | None:
        """The longest text the model can read, in tokens."""
        return self.max_length

    @property
    def summary(self) -> str:
        """The model's sizes, in one line."""
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return (
            f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads, "
            f"texts of up to {self.max_length} tokens{classes}"
        )
