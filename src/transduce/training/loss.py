"""The loss (section 5.4 of the paper): cross-entropy against label-smoothed targets."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from transduce.engine.training import cross_entropy_

CHUNK = 1024  # positions whose logits are in memory at a time
CPU_CHUNK = 512  # the same on CPUs, where they should stay in the caches
R_DROP_CHUNK = 256  # the same for R-Drop on CPUs, which uses more arrays: they must fit in the caches


def label_smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, smoothing: float = 0.1
) -> Tensor:
    """Return the mean loss of the targets that are not padding, in nats: the oracle of `chunked_loss`.

    The true token has probability 1 − smoothing, and ``smoothing`` is distributed evenly over all tokens
    (Szegedy et al., 2016). Logits (batch, target, vocabulary), targets (batch, target).
    """
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


@dataclass(frozen=True)
class Loss:
    """Sums over the target tokens that are not padding, so that parts of a batch can be added."""

    smoothed: Tensor  # scalar with a gradient: the label-smoothed loss, which is minimized
    negative_log_likelihood: float
    correct: int
    tokens: int


def classification_loss(logits: Tensor, labels: Tensor, *, smoothing: float) -> Loss:
    """Return the loss of logits (batch, classes) for labels (batch,); every example counts as one token."""
    logits = logits.float()
    smoothed = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    with torch.no_grad():
        nll = float(F.cross_entropy(logits, labels, reduction="sum"))
        correct = int((logits.argmax(dim=-1) == labels).sum())
    return Loss(smoothed, nll, correct, len(labels))


def chunked_loss(
    hidden: Tensor,
    output: Tensor,
    targets: Tensor,
    *,
    pad: int,
    smoothing: float,
    bias: Tensor | None = None,
    chunk: int | None = None,
) -> Loss:
    """Return the loss of hidden states, computed from the logits of one chunk of positions at a time.

    hidden (…, d_model), output (vocabulary, d_model), targets (…), whose padding is left out, and the
    output's bias (vocabulary,). The gradients are computed together with the loss, while a chunk's logits
    are in memory: the logits of all positions never exist at once.
    """
    real = targets != pad
    score = _CrossEntropy(smoothing, len(output))
    chunk = chunk or (CPU_CHUNK if hidden.device.type == "cpu" else CHUNK)
    hidden, output = _with_bias(hidden[real], output, bias)
    smoothed: Tensor = _Chunked.apply(hidden, output, targets[real], score, chunk)  # type: ignore[no-untyped-call]
    return Loss(smoothed, score.negative_log_likelihood, score.correct, int(real.sum()))


def r_drop_loss(
    hidden: Tensor,
    output: Tensor,
    targets: Tensor,
    *,
    pad: int,
    smoothing: float,
    weight: float,
    bias: Tensor | None = None,
    chunk: int | None = None,
) -> Loss:
    """Return the loss of R-Drop (Liang et al., 2021): two passes with different dropout should agree.

    hidden (2, batch, target, d_model) holds the two passes; the rest is as for `chunked_loss`. The loss is
    the mean of both passes' losses plus ``weight`` / 2 times the mean of the divergences KL(1‖2) and KL(2‖1).
    This is half of the loss in the article, so that with weight 0 it is the loss of an ordinary pass.
    """
    real = targets != pad
    both = hidden[:, real].transpose(0, 1).flatten(0, 1)  # rows 2i and 2i + 1: both passes of position i
    both, output = _with_bias(both, output, bias)
    labels = targets[real].repeat_interleave(2)
    score = _RDrop(smoothing, len(output), weight)
    chunk = chunk or (R_DROP_CHUNK if hidden.device.type == "cpu" else CHUNK)
    twice: Tensor = _Chunked.apply(both, output, labels, score, max(2, chunk // 2 * 2))  # type: ignore[no-untyped-call]
    return Loss(twice / 2, score.negative_log_likelihood / 2, score.correct // 2, int(real.sum()))


def _with_bias(hidden: Tensor, output: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Make the bias one more column of the output, for an input that is always 1."""
    if bias is None:
        return hidden, output
    ones = torch.ones_like(hidden[:, :1])
    return torch.cat((hidden, ones), dim=1), torch.cat((output, bias[:, None]), dim=1)


class _CrossEntropy:
    """Cross-entropy of logits (positions, vocabulary) and labels (positions,), with its gradient.

    The gradient overwrites the logits, up to two corrections that are cheaper to apply after the next matrix
    product: a factor per position, which is returned, and ``shift``, to be subtracted from every element.
    """

    def __init__(self, smoothing: float, vocabulary: int) -> None:
        self.smoothing = smoothing
        self.shift = smoothing / vocabulary
        self.loss = 0.0
        self.negative_log_likelihood = 0.0
        self.correct = 0

    def __call__(self, logits: Tensor, labels: Tensor, mean: Tensor) -> Tensor:
        """Add to the sums and overwrite the logits; return the factors, (positions, 1).

        ``mean`` (positions, 1) is the mean logit of each position.
        """
        if numbers := cross_entropy_(logits, labels, self.smoothing):
            log_normalizer, right, highest, total = numbers
            self._add(log_normalizer, right, highest, mean)
            return 1 / total
        gold = labels[:, None]
        highest = logits.amax(dim=-1, keepdim=True)
        right = logits.gather(1, gold)
        exponentials = logits.sub_(highest).exp_()
        total = exponentials.sum(dim=-1, keepdim=True)
        self._add(highest + total.log(), right, highest, mean)
        exponentials.scatter_add_(1, gold, (self.smoothing - 1) * total)  # (softmax − target) · total
        return 1 / total

    def _add(self, log_normalizer: Tensor, right: Tensor, highest: Tensor, mean: Tensor) -> None:
        """Add to the sums. All are (positions, 1): log Σ exp, the label's, the highest and the mean logit."""
        nll = float((log_normalizer - right).sum(dtype=torch.float64))
        uniform = float((log_normalizer - mean).sum(dtype=torch.float64))
        self.negative_log_likelihood += nll
        self.correct += int((right == highest).sum())
        self.loss += (1 - self.smoothing) * nll + self.smoothing * uniform


class _RDrop(_CrossEntropy):
    """The loss of both passes of R-Drop; rows 2i and 2i + 1 are the passes over the same position."""

    def __init__(self, smoothing: float, vocabulary: int, weight: float) -> None:
        super().__init__(smoothing, vocabulary)
        self.weight = weight

    def __call__(self, logits: Tensor, labels: Tensor, mean: Tensor) -> Tensor:
        half, gold, vocabulary = self.weight / 2, labels[:, None], logits.size(1)
        highest, right = logits.amax(dim=-1, keepdim=True), logits.gather(1, gold)
        both = logits.view(-1, 2, vocabulary)
        difference = both[:, 0] - both[:, 1]  # z₁ − z₂, (positions, vocabulary)
        p = logits.softmax(dim=-1)
        log_normalizer = highest - p.amax(dim=-1, keepdim=True).log()  # n, where log p = z − n
        self._add(log_normalizer, right, highest, mean)
        # KL(1‖2) = Σ p₁ (z₁ − z₂) − (n₁ − n₂); KL(2‖1) has p₂ and the opposite signs
        sign = logits.new_tensor([1, -1])[:, None]
        p = p.view(-1, 2, vocabulary)
        offset = sign * (log_normalizer[::2] - log_normalizer[1::2])[:, None]
        divergence = sign * (p @ difference[:, :, None]) - offset  # (positions, 2, 1)
        self.loss += half * float(divergence.sum(dtype=torch.float64))
        # Derivatives by the logits of p: d KL(p‖q) = p (log p − log q − KL(p‖q)) and d KL(q‖p) = p − q. The
        # whole gradient is p (1 + half (log p − log q − KL + 1)) − half q − target.
        scale = 1 + half * (1 - divergence - offset)
        for first, second, signed_half in ((0, 1, half), (1, 0, -half)):
            gradient = torch.add(scale[:, first], difference, alpha=signed_half, out=both[:, first])
            gradient.mul_(p[:, first]).sub_(p[:, second], alpha=half)
        logits.scatter_add_(1, gold, torch.full_like(right, self.smoothing - 1))
        return torch.ones_like(right)


class _Chunked(torch.autograd.Function):
    """Logits, loss and gradients of one chunk of positions after the other."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: Tensor, output: Tensor, labels: Tensor, score: _CrossEntropy, chunk: int
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:2])  # type: ignore[attr-defined]
        trains_output: bool = ctx.needs_input_grad[1]  # type: ignore[attr-defined]
        hidden = hidden.to(output.dtype)
        d_hidden = torch.zeros_like(hidden) if needs_gradient else hidden
        d_output = torch.zeros_like(output) if trains_output else output
        # Under autocast, only matrix products are computed in its type.
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else output.dtype
        with torch.autocast(kind, enabled=False):
            matrix, mean_row = output.to(dtype), output.mean(dim=0)
            buffer = output.new_empty((min(chunk, len(hidden)), len(output)), dtype=dtype)
            for begin in range(0, len(hidden), chunk):
                part = hidden[begin : begin + chunk]
                logits = torch.mm(part.to(dtype), matrix.t(), out=buffer[: len(part)]).to(output.dtype)
                factors = score(logits, labels[begin : begin + chunk], (part @ mean_row)[:, None])
                if needs_gradient:
                    d_logits = logits.to(dtype)
                    d_hidden[begin : begin + chunk] = (d_logits @ matrix) * factors
                    if trains_output:
                        _add_product(d_output, d_logits.t(), (part * factors).to(dtype))
        if needs_gradient:
            d_hidden -= score.shift * len(output) * mean_row
            if trains_output:
                d_output -= score.shift * hidden.sum(dim=0)
            ctx.save_for_backward(d_hidden, *([d_output] if trains_output else []))
        return output.new_tensor(score.loss)

    @staticmethod
    def backward(ctx: FunctionCtx, scale: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, *d_output = ctx.saved_tensors  # type: ignore[attr-defined]
        return d_hidden * scale, d_output[0] * scale if d_output else None, None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
