"""The loss (section 5.4): cross-entropy against label-smoothed targets."""

from torch import Tensor
from torch.nn import functional as F


def label_smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, smoothing: float = 0.1
) -> Tensor:
    """Mean over the targets that are not padding, in nats.

    The true token gets 1 − smoothing, and all tokens share ``smoothing`` evenly (Szegedy et al., 2016).
    Logits (batch, target, vocabulary), targets (batch, target).
    """
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing
    )
