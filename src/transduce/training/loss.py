"""The loss (section 5.4): cross-entropy against label-smoothed targets."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

CHUNK = 1024  # positions whose logits are held at a time


def label_smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, smoothing: float = 0.1
) -> Tensor:
    """Mean over the targets that are not padding, in nats: the oracle of `chunked_loss`.

    The true token gets 1 − smoothing, and all tokens share ``smoothing`` evenly (Szegedy et al., 2016).
    Logits (batch, target, vocabulary), targets (batch, target).
    """
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


@dataclass(frozen=True)
class Loss:
    """Sums over real target tokens, so that parts of a batch can be added up."""

    smoothed: Tensor  # scalar, with a gradient: what is minimised
    negative_log_likelihood: float
    correct: int
    tokens: int


def chunked_loss(
    hidden: Tensor, output: Tensor, targets: Tensor, *, pad: int, smoothing: float, chunk: int = CHUNK
) -> Loss:
    """Project, normalise and score a few positions at a time; padding is never projected.

    hidden (batch, target, d_model), output (vocabulary, d_model), targets (batch, target). The gradients are
    computed on the way, while a chunk's logits are at hand, so that all logits never exist at once.
    """
    real = targets != pad
    positions, labels = hidden[real], targets[real]
    totals = torch.zeros(2, dtype=torch.float64)  # negative log-likelihood, correct
    smoothed: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        positions, output, labels, smoothing, chunk, totals
    )
    return Loss(smoothed, totals[0].item(), int(totals[1]), len(labels))


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        output: Tensor,
        labels: Tensor,
        smoothing: float,
        chunk: int,
        totals: Tensor,
    ) -> Tensor:
        smoothed = 0.0
        wanted = any(ctx.needs_input_grad[:2])  # type: ignore[attr-defined]
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_output = torch.zeros_like(output) if wanted else None
        for begin in range(0, len(hidden), chunk):
            part, gold = hidden[begin : begin + chunk], labels[begin : begin + chunk, None]
            logits = part @ output.t()  # (chunk, vocabulary)
            normaliser = logits.logsumexp(dim=-1, keepdim=True)
            right = logits.gather(1, gold)
            nll = (normaliser - right).sum(dtype=torch.float64)
            even = (normaliser - logits.mean(dim=-1, keepdim=True)).sum(dtype=torch.float64)
            smoothed += float((1 - smoothing) * nll + smoothing * even)
            totals[0] += nll.cpu()
            totals[1] += (logits.argmax(dim=-1, keepdim=True) == gold).sum().cpu()
            if d_hidden is not None and d_output is not None:
                # softmax − smoothed target, in the memory of the logits
                d_logits = logits.sub_(normaliser).exp_().sub_(smoothing / len(output))
                d_logits.scatter_add_(1, gold, torch.full_like(right, smoothing - 1))
                torch.mm(d_logits, output, out=d_hidden[begin : begin + chunk])
                d_output.addmm_(d_logits.t(), part)
        if d_hidden is not None and d_output is not None:
            ctx.save_for_backward(d_hidden, d_output)
        return hidden.new_tensor(smoothed)

    @staticmethod
    def backward(ctx: FunctionCtx, scale: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_output = ctx.saved_tensors  # type: ignore[attr-defined]
        return d_hidden * scale, d_output * scale, None, None, None, None
