"""The kinds of self-attention of a Transformer, each with its own options: ``[model.attention]``."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from transduce.config.settings import Count, Id, Settings


class FullAttention(Settings):
    """The paper's attention: every position attends to every other."""

    kind: Literal["full"] = Field(default="full", description="Name of the kind of attention.")


class WindowAttention(Settings):
    """Attention to a window of neighbours and to the first, global positions."""

    kind: Literal["window"] = Field(default="window", description="Name of the kind of attention.")
    radius: Count = Field(default=128, description="Positions on either side that a position attends to.")
    global_tokens: Id = Field(
        default=0,
        description="First positions that attend to all positions and to which all attend.",
    )


class LowRankAttention(Settings):
    """Attention to learned mixtures of the positions, in the encoder; the decoder uses full attention."""

    kind: Literal["low_rank"] = Field(default="low_rank", description="Name of the kind of attention.")
    rank: Count = Field(default=128, description="Number of mixtures.")


class HashedAttention(Settings):
    """Attention to similar positions, found by locality-sensitive hashing."""

    kind: Literal["hashed"] = Field(default="hashed", description="Name of the kind of attention.")
    buckets: Count = Field(default=16, description="Hash buckets: an even number, or 1.")
    rounds: Count = Field(default=2, description="Hash rounds, each with its own random directions.")
    chunk: Count = Field(default=64, description="Positions of a bucket that attend to one another.")

    @model_validator(mode="after")
    def _check(self) -> "HashedAttention":
        if self.buckets > 1 and self.buckets % 2:
            raise ValueError(f"buckets = {self.buckets} is odd; choose an even number, or 1")
        return self


def _kind_of(data: object) -> object:
    """Return the kind that a table or an object names; a table without one is of the default kind."""
    return data.get("kind", "full") if isinstance(data, dict) else getattr(data, "kind", "full")


# A new kind of attention is a class above, a member here and a case in `transduce.models.transformer`.
AttentionConfig = Annotated[
    Annotated[FullAttention, Tag("full")]
    | Annotated[WindowAttention, Tag("window")]
    | Annotated[LowRankAttention, Tag("low_rank")]
    | Annotated[HashedAttention, Tag("hashed")],
    Discriminator(_kind_of),
]
