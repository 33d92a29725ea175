"""Shared embeddings of source, target and output (section 3.4)."""

from functools import partial
from typing import Literal

from transduce.config import Vocabulary
from transduce.errors import ConfigError
from transduce.nn.embedding import Embedding


def share_embeddings(
    vocabulary: Vocabulary,
    d_model: int,
    share: Literal["all", "target", "inputs", "none"],
    *,
    scaled: bool = True,
    output_bias: bool = False,
    fixed_padding: bool = False,
) -> tuple[Embedding, Embedding, Embedding]:
    """Return the source embedding, the target embedding and the pre-softmax projection."""
    one_input = share in ("all", "inputs")
    if one_input and vocabulary.source != vocabulary.target:
        raise ConfigError(
            f"share = {share!r} needs a joint vocabulary, but there are {vocabulary.source:,} source and "
            f"{vocabulary.target:,} target tokens",
            "set share = 'target'",
        )
    fixed = vocabulary.pad if fixed_padding else None
    new = partial(Embedding, d_model=d_model, scaled=scaled, fixed=fixed)
    source = new(vocabulary.source, bias=output_bias and share == "all")
    target = source if one_input else new(vocabulary.target, bias=output_bias and share == "target")
    output = new(vocabulary.target, bias=output_bias) if share in ("inputs", "none") else target
    return source, target, output
