"""The padding token that an import appends to a vocabulary without one, and an export leaves out again."""

from torch import Tensor
from torch.nn import functional as F

from transduce.models.transformer import Transformer

PAD = "<pad>"
NEVER = -100.0  # the logit of the token; finite, so that training stays possible
_LOW = -50.0  # a logit so low that the other probabilities do not change if its token is left out


def append_row(matrix: Tensor) -> Tensor:
    """Add the embedding of the token to a matrix, (tokens, d_model): zeros."""
    return F.pad(matrix, (0, 0, 0, 1))


def append_logit(bias: Tensor) -> Tensor:
    """Add the bias of the token to that of the output layer, (tokens,): it is never predicted."""
    return F.pad(bias, (0, 1), value=NEVER)


def has_appended_padding(model: Transformer) -> bool:
    """Return whether the last token is padding that is never predicted and whose embedding is zero.

    If it is also what the decoder reads first, an export starts from a zero embedding instead.
    """
    last, bias = model.vocabulary.target - 1, model.output.bias
    if not model.vocabulary.source - 1 == last == model.vocabulary.pad:
        return False
    rows = (matrix.weight[last] for matrix in (model.source_embedding, model.target_embedding, model.output))
    return bias is not None and bool(bias[last] <= _LOW) and not any(bool(row.any()) for row in rows)
