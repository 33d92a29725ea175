"""The padding token that an import adds to vocabularies without one, and an export leaves out again.

It has one id on both sides: that of the first token after the shorter vocabulary. The ids of the longer one
go on after it.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from transduce.models.transformer import Transformer

PAD = "<pad>"
NEVER = -100.0  # the logit of the token; finite, so that training stays possible
_LOW = -50.0  # a logit so low that the other probabilities do not change if its token is left out
Item = TypeVar("Item")


def add_token(vocabularies: Sequence[list[str]], name: str) -> tuple[int, list[list[str]]]:
    """Return the id of a token that both vocabularies lack, and both with it."""
    place = min(map(len, vocabularies))
    return place, [[*tokens[:place], name, *tokens[place:]] for tokens in vocabularies]


def add_row(matrix: Tensor, place: int) -> Tensor:
    """Add the embedding of the token to a matrix, (tokens, d_model): zeros."""
    return torch.cat((matrix[:place], matrix.new_zeros(1, *matrix.shape[1:]), matrix[place:]))


def add_logit(bias: Tensor, place: int) -> Tensor:
    """Add the bias of the token to that of the output layer, (tokens,): it is never predicted."""
    return torch.cat((bias[:place], bias.new_full((1,), NEVER), bias[place:]))


def without_token(items: Sequence[Item], place: int | None) -> list[Item]:
    """Leave out the token among the tokens of a vocabulary, if there is one."""
    return [item for number, item in enumerate(items) if number != place]


def without_row(tensor: Tensor, place: int | None) -> Tensor:
    """Leave out the row of the token in a tensor with a row for every token, if there is one."""
    return tensor if place is None else torch.cat((tensor[:place], tensor[place + 1 :]))


def added_padding(model: Transformer) -> int | None:
    """Return the id of padding that is never predicted and whose embedding is zero, if the model's is so.

    If it is also what the decoder reads first, an export starts from a zero embedding instead.
    """
    pad, bias = model.vocabulary.pad, model.output.bias
    if bias is None or bool(bias[pad] > _LOW):
        return None
    rows = (matrix.weight[pad] for matrix in (model.source_embedding, model.target_embedding, model.output))
    return None if any(bool(row.any()) for row in rows) else pad
