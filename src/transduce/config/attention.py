"""The kinds of self-attention of a Transformer, each with its own options: ``[model.attention]``."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from transduce.config.settings import Count, Id, Settings


class FullAttention(Settings):
    """The paper's attention: every position attends to every other."""

    kind: Literal["full"] = "full"


class WindowAttention(Settings):
    """Attention to a window of neighbours and to the first, global positions."""

    kind: Literal["window"] = "window"
    radius: Count = Field(128, description="Positions on either side that a position attends to.")
    global_tokens: Id = Field(
        0, description="First positions of a sequence that attend to all positions and that all attend to."
    )


class LowRankAttention(Settings):
    """Attention to learned mixtures of the positions, in the encoder; the decoder uses full attention."""

    kind: Literal["low_rank"] = "low_rank"
    rank: Count = Field(128, description="Number of mixtures.")


class HashedAttention(Settings):
    """Attention to similar positions, found by locality-sensitive hashing."""

    kind: Literal["hashed"] = "hashed"
    buckets: Count = Field(16, description="Hash buckets: an even number, or 1.")
    rounds: Count = Field(2, description="Hash rounds, each with other random directions.")
    chunk: Count = Field(64, description="Positions of a bucket that attend to one another.")

    @model_validator(mode="after")
    def _check(self) -> "HashedAttention":
        if self.buckets > 1 and self.buckets % 2:
            raise ValueError(f"buckets must be even, or 1, not {self.buckets}")
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
