"""Shared embeddings of source, target and output (section 3.4)."""

from typing import Literal

from transduce.config import Vocabulary
from transduce.errors import ConfigError
from transduce.nn.embedding import Embedding


def share_embeddings(
    vocabulary: Vocabulary, d_model: int, share: Literal["all", "target", "none"]
) -> tuple[Embedding, Embedding, Embedding]:
    """Return the source embedding, the target embedding and the pre-softmax projection."""
    if share == "all" and vocabulary.source != vocabulary.target:
        raise ConfigError(
            f"share = 'all' needs a joint vocabulary, but there are {vocabulary.source:,} source and "
            f"{vocabulary.target:,} target tokens",
            "set share = 'target'",
        )
    source = Embedding(vocabulary.source, d_model)
    target = source if share == "all" else Embedding(vocabulary.target, d_model)
    output = Embedding(vocabulary.target, d_model) if share == "none" else target
    return source, target, output
