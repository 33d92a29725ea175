"""Settings that several model families share; each family gives them its own default."""

from typing import Annotated, Literal

from pydantic import Field

from transduce.config.settings import Count, Epsilon, LayerCount, Probability, Width

Layers = Annotated[LayerCount, Field(description="Number of layers.")]
EncoderLayers = Annotated[LayerCount, Field(description="Number of encoder layers.")]
DecoderLayers = Annotated[LayerCount, Field(description="Number of decoder layers.")]
ModelWidth = Annotated[Width, Field(description="Width of the model.")]
FeedForwardWidth = Annotated[Width, Field(description="Width of the feed-forward networks.")]
Heads = Annotated[Width, Field(description="Number of attention heads.")]
KeyWidth = Annotated[
    Width | None, Field(description="Width of queries and keys per head; d_model / heads if unset.")
]
ValueWidth = Annotated[Width | None, Field(description="Width of values per head; d_model / heads if unset.")]
Dropout = Annotated[
    Probability, Field(description="Dropout on the output of every sub-layer and on the embeddings.")
]
AttentionDropout = Annotated[Probability, Field(description="Dropout on attention weights.")]
ActivationDropout = Annotated[Probability, Field(description="Dropout inside the feed-forward networks.")]
Norm = Annotated[Literal["post", "pre"], Field(description="Layer norm after or before each sub-layer.")]
NormEpsilon = Annotated[Epsilon, Field(description="Epsilon of the layer norms.")]
SharedEmbeddings = Annotated[
    Literal["all", "target", "inputs", "none"],
    Field(
        description="Which embeddings share one matrix: source, target and output; target and output; source "
        "and target; none."
    ),
]
SourceFactors = Annotated[
    list[Count],
    Field(description="Vocabulary size of each source factor; set by the files of --source-factor."),
]


def check_heads(d_model: int, heads: int, *, remedy: str = "choose other sizes") -> None:
    """Refuse a width that cannot be divided among the heads."""
    if d_model % heads:
        raise ValueError(f"d_model {d_model} is not divisible by {heads} heads; {remedy}")
