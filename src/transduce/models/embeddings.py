"""Which of the source's, the target's and the output's embeddings are one (section 3.4)."""

from typing import Literal

from transduce.config import Vocabulary
from transduce.errors import ConfigError
from transduce.nn.embedding import Embedding


def share_embeddings(
    vocabulary: Vocabulary, d_model: int, share: Literal["all", "target", "none"]
) -> tuple[Embedding, Embedding, Embedding]:
    """Of the source, of the target, and the pre-softmax projection."""
    if share == "all" and vocabulary.source != vocabulary.target:
        raise ConfigError(
            f"share = 'all' needs one vocabulary, but there are {vocabulary.source} source "
            f"and {vocabulary.target} target tokens",
            "set share = 'target'",
        )
    source = Embedding(vocabulary.source, d_model)
    target = source if share == "all" else Embedding(vocabulary.target, d_model)
    output = Embedding(vocabulary.target, d_model) if share == "none" else target
    return source, target, output
