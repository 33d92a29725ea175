"""A target tokenizer from a model's own vocabulary, for models that come with the source's tokenizer only.

Such a model was trained with another SentencePiece model for targets, which is not there, since nobody needs
it in order to translate. What that one knew are pieces, which the vocabulary holds, and how frequent each is:
about what the order of the vocabulary tells, from the most frequent token to the rarest.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np
from tokenizers import Tokenizer

from transduce.data.sentencepiece import tokenizer_of
from transduce.data.sentencepiece_file import ModelType, Piece, PieceType, SentencePieceModel

_FOREIGN = 0.1  # share of tokens that a model's own SentencePiece model may lack


def lacks_tokens(model: SentencePieceModel, tokens: Sequence[str]) -> bool:
    """Return whether a vocabulary has many tokens that are not pieces of a SentencePiece model."""
    pieces = {piece.text for piece in model.pieces}
    return sum(token not in pieces for token in tokens) > _FOREIGN * len(tokens)


def vocabulary_tokenizer(
    model: SentencePieceModel, tokens: Sequence[str], special: Collection[str], name: str
) -> Tokenizer:
    """Return a unigram tokenizer of ``tokens``, in the order of their frequencies, but for ``special`` ones.

    It normalizes and decodes as the SentencePiece model does. Probabilities follow Zipf's law: that of the
    n-th token is proportional to 1 / n.
    """
    kept = [piece for piece in model.pieces if piece.type != PieceType.NORMAL]
    hidden = {*special, *(piece.text for piece in kept)}
    total = math.log(sum(1 / rank for rank in range(1, len(tokens) + 1)))
    ordinary = [
        # Rounded, because a SentencePiece model, as which it may be exported, has scores in 32 bits.
        Piece(token, float(np.float32(-math.log(rank) - total)), PieceType.NORMAL)
        for rank, token in enumerate(tokens, 1)
        if token and token not in hidden
    ]
    trainer = model.trainer._replace(model_type=ModelType.UNIGRAM)
    return tokenizer_of(model._replace(pieces=(*kept, *ordinary), trainer=trainer), name)
