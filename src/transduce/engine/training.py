"""Sub-layers of training on CPUs that the engine computes faster than torch: one pass instead of several.

`accelerate` tells a model's modules to use them. They compute the same as the modules in `transduce.nn`,
which are their oracles, but for rounding and for the random numbers of dropout.
"""

import ctypes
import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from transduce.engine.native import Engine, check, engine, required_library
from transduce.engine.packed_linear import MULTIPLE
from transduce.engine.structures import DropoutStruct, FullAttentionStruct, NormStruct, ResidualStruct
from transduce.nn.adapter import LowRankLinear
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import MultiHeadAttention
from transduce.nn.residual import Residual

LONGEST = 128  # positions up to which attention is computed here: torch's kernel is made for longer sequences
_LEVELS = 1 << 31  # of the random numbers that drop elements


def accelerate(model: nn.Module) -> None:
    """Let the engine compute what it can of a model's training, where this machine has one."""
    used = engine()
    if used is None:
        return
    _share_threads()
    for module in model.modules():
        if isinstance(module, Residual) and _is_complete(module.norm, module.norm.weight.numel()):
            module.fused = FusedResidual(used)
        elif isinstance(module, MultiHeadAttention) and not (module.d_k % MULTIPLE or module.d_v % MULTIPLE):
            module.fused = FusedAttention(used)
        elif isinstance(module, FeedForward) and _has_plain_layers(module):
            module.fused = FusedFeedForward(used)


def _is_complete(module: nn.LayerNorm | nn.Linear, width: int) -> bool:
    """Return whether a module has a bias and a width that fills vectors."""
    return width % MULTIPLE == 0 and module.bias is not None


def _has_plain_layers(module: FeedForward) -> bool:
    """Return whether the engine can compute with the weights; those of adapted layers are only a part."""
    layers = module.inner, module.outer
    is_adapted = any(isinstance(layer, LowRankLinear) for layer in layers)
    return _is_complete(module.outer, module.outer.in_features) and not is_adapted


@cache
def _share_threads() -> None:
    """Use the threads of torch's OpenMP library, if it has one; see ``csrc/threads.c``."""
    installed = Path(torch.__file__).parent
    for path in [*(installed / "lib").glob("libgomp*.so*"), *Path(f"{installed}.libs").glob("libgomp*.so*")]:
        library = ctypes.CDLL(str(path))
        names = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
        functions = (ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names)
        required_library().transduce_use_team(*functions)
        return


class FusedResidual:
    """``x + Dropout(update)`` in one pass, and the norm of it."""

    def __init__(self, used: Engine) -> None:
        self.engine = used

    def takes(self, x: Tensor) -> bool:
        """Return whether x is what the engine computes with."""
        return x.device.type == "cpu" and x.dtype == torch.float32

    def __call__(self, residual: Residual, x: Tensor, update: Tensor) -> Tensor:
        """Return ``x + Dropout(update)``, normalised if the norm comes after it: the shape of x."""
        dropout = _dropout_struct(residual.dropout)
        norm = residual.norm
        parameters = (None, None) if residual.pre else (norm.weight, norm.bias)
        y: Tensor = _Residual.apply(x, update.float(), *parameters, norm.eps, dropout, self.engine)  # type: ignore[no-untyped-call]
        return y


def _dropout_struct(dropout: Dropout) -> DropoutStruct:
    """Draw the seed of one application of dropout from its generator."""
    if not dropout.training or dropout.p == 0:
        return DropoutStruct()
    seed = torch.empty((), dtype=torch.int64).random_(generator=dropout.generator)
    dropped = min(round(dropout.p * _LEVELS), _LEVELS - 1)
    return DropoutStruct(int(seed), dropped, _LEVELS / (_LEVELS - dropped))


class _Residual(torch.autograd.Function):
    """The residual connection and its gradients."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        update: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        epsilon: float,
        dropout: DropoutStruct,
        used: Engine,
    ) -> Tensor:
        x, update = x.contiguous(), update.contiguous()
        if update.shape != x.shape:
            raise ValueError(f"cannot add an update of shape {tuple(update.shape)} to {tuple(x.shape)}")
        if weight is not None and bias is not None:
            _require_float32(x, weight, bias)
            if not weight.shape == bias.shape == x.shape[-1:]:
                raise ValueError(f"a norm of width {len(weight)} does not fit {tuple(x.shape)}")
        _require_float32(x, update)
        total = torch.empty_like(x)
        y = total if weight is None else torch.empty_like(x)
        statistics = x.new_empty(0 if weight is None else 2 * x[..., 0].numel())
        struct = _residual_struct(x, weight, bias, epsilon, dropout)
        struct.x, struct.update, struct.sum = x.data_ptr(), update.data_ptr(), total.data_ptr()
        struct.y, struct.statistics = y.data_ptr(), statistics.data_ptr()
        error = required_library().transduce_residual(
            used.kernels, ctypes.addressof(struct), torch.get_num_threads()
        )
        check(error, f"a residual connection of shape {tuple(x.shape)}")
        saved = () if weight is None else (total, statistics, weight, bias)
        ctx.save_for_backward(*saved)
        ctx.settings = epsilon, dropout, used  # type: ignore[attr-defined]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_y: Tensor) -> tuple[Tensor | None, ...]:
        epsilon, dropout, used = ctx.settings  # type: ignore[attr-defined]
        d_y = d_y.contiguous()
        saved: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        if not saved and not dropout.dropped:
            return d_y, d_y, *[None] * 5
        total, statistics, weight, bias = saved or (None,) * 4
        d_x = torch.empty_like(d_y) if saved else d_y
        d_update = torch.empty_like(d_y) if dropout.dropped else d_x
        d_weight, d_bias = (torch.empty_like(part) for part in saved[2:]) if saved else (None, None)
        struct = _residual_struct(d_y, weight, bias, epsilon, dropout)
        struct.d_y, struct.d_x, struct.d_update = d_y.data_ptr(), d_x.data_ptr(), d_update.data_ptr()
        struct.sum, struct.statistics = _pointer(total), _pointer(statistics)
        error = required_library().transduce_residual_backward(
            *(used.kernels, ctypes.addressof(struct), _pointer(d_weight), _pointer(d_bias)),
            torch.get_num_threads(),
        )
        check(error, f"the gradients of a residual connection of shape {tuple(d_y.shape)}")
        return d_x, d_update, d_weight, d_bias, None, None, None


def _residual_struct(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, dropout: DropoutStruct
) -> ResidualStruct:
    return ResidualStruct(
        norm=NormStruct(_pointer(weight), _pointer(bias)),
        dropout=dropout,
        rows=x[..., 0].numel(),
        width=x.size(-1),
        epsilon=epsilon,
    )


def _require_float32(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise TypeError(f"expected float32 on the CPU, not {tensor.dtype} on {tensor.device}")


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class FusedFeedForward:
    """``max(0, x W1 + b1) W2 + b2``, whose backward pass takes one pass less over the inner layer."""

    def __init__(self, used: Engine) -> None:
        self.engine = used

    def takes(self, x: Tensor) -> bool:
        """Return whether x is what the engine computes with."""
        is_float = x.device.type == "cpu" and x.dtype == torch.float32
        return is_float and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")

    def __call__(self, feed_forward: FeedForward, x: Tensor) -> Tensor:
        """Transform x, (positions, d_model) → the same shape."""
        inner, outer = feed_forward.inner, feed_forward.outer
        y: Tensor = _FeedForward.apply(x, inner.weight, inner.bias, outer.weight, outer.bias, self.engine)  # type: ignore[no-untyped-call]
        return y


class _FeedForward(torch.autograd.Function):
    """The feed-forward network and its gradients."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, used: Engine
    ) -> Tensor:
        active = torch.addmm(b1, x, w1.t()).relu_()
        ctx.save_for_backward(x, active, w1, w2)
        ctx.engine = used  # type: ignore[attr-defined]
        return torch.addmm(b2, active, w2.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, active, w1, w2 = ctx.saved_tensors  # type: ignore[attr-defined]
        d_active = torch.mm(d_y, w2)
        _require_float32(d_active, active)
        d_b1 = w1.new_empty(len(w1))
        error = required_library().transduce_relu_backward(
            *(ctx.engine.kernels, d_active.data_ptr(), active.data_ptr()),  # type: ignore[attr-defined]
            *(*d_active.shape, d_b1.data_ptr(), torch.get_num_threads()),
        )
        check(error, f"the gradients of {len(x):,} positions")
        d_w1, d_w2 = torch.mm(d_active.t(), x), torch.mm(d_y.t(), active)
        return torch.mm(d_active, w1), d_w1, d_b1, d_w2, d_y.sum(dim=0), None


class FusedAttention:
    """Attention of whole examples whose heads stay beside one another, without padding."""

    def __init__(self, used: Engine) -> None:
        self.engine = used

    def takes(self, query: Tensor, keys: int) -> bool:
        """Return whether the engine should compute this attention."""
        is_float = query.device.type == "cpu" and query.dtype == torch.float32
        return is_float and torch.is_grad_enabled() and max(query.size(1), keys) <= LONGEST

    def __call__(
        self,
        attention: MultiHeadAttention,
        query: Tensor,
        key_value: Tensor | None,
        lengths: tuple[Tensor, Tensor],
        *,
        causal: bool,
    ) -> Tensor:
        """Attend with all heads: → (batch, query, heads · d_v).

        query is (batch, query, heads · d_k), and key_value (batch, key, heads · (d_k + d_v)). Without
        key_value, query has the queries, keys and values of self-attention. ``lengths`` are those of the
        queries and of the keys, without padding.
        """
        sizes = attention.heads, attention.d_k, attention.d_v
        projected = [query.float()] if key_value is None else [query.float(), key_value.float()]
        mixed: Tensor = _Attention.apply(*lengths, sizes, causal, self.engine, *projected)  # type: ignore[no-untyped-call]
        return mixed


class _Attention(torch.autograd.Function):
    """Attention and its gradients."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        query_lengths: Tensor,
        key_lengths: Tensor,
        sizes: tuple[int, int, int],
        causal: bool,
        used: Engine,
        *projected: Tensor,
    ) -> Tensor:
        projected = tuple(part.contiguous() for part in projected)
        batch, queries, _ = projected[0].shape
        keys = projected[-1].size(1)
        heads, d_k, d_v = sizes
        widths = [2 * d_k + d_v] if len(projected) == 1 else [d_k, d_k + d_v]
        if [part.size(2) for part in projected] != [heads * width for width in widths]:
            raise ValueError(f"{heads} heads of {d_k} and {d_v} dimensions do not fit the projections")
        if any(len(part) != batch for part in (*projected, query_lengths, key_lengths)):
            raise ValueError(f"got {batch} examples of queries, but not as many keys and lengths")
        _require_float32(*projected)
        lengths = query_lengths.int().contiguous(), key_lengths.int().contiguous()
        out = projected[0].new_empty(batch, queries, heads * d_v)
        weights = projected[0].new_empty(batch, heads, queries, -(-keys // MULTIPLE) * MULTIPLE)
        struct = _attention_struct(projected, weights, lengths, sizes, causal)
        struct.out = out.data_ptr()
        _attend(struct, used, backward=False)
        ctx.save_for_backward(weights, *lengths, *projected)
        ctx.settings = sizes, causal, used  # type: ignore[attr-defined]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_out: Tensor) -> tuple[Tensor | None, ...]:
        sizes, causal, used = ctx.settings  # type: ignore[attr-defined]
        weights, query_lengths, key_lengths, *projected = ctx.saved_tensors  # type: ignore[attr-defined]
        d_out = d_out.contiguous()
        gradients = [torch.empty_like(part) for part in projected]
        struct = _attention_struct(projected, weights, (query_lengths, key_lengths), sizes, causal)
        struct.d_out = d_out.data_ptr()
        struct.d_query, struct.d_key, struct.d_value = _parts(gradients, sizes)
        _attend(struct, used, backward=True)
        return None, None, None, None, None, *gradients


def _parts(projected: "list[Tensor] | tuple[Tensor, ...]", sizes: tuple[int, int, int]) -> tuple[int, ...]:
    """Return pointers to the queries, keys and values among their projections."""
    heads, d_k, _ = sizes
    size = projected[0].element_size() * heads * d_k
    first, last = projected[0].data_ptr(), projected[-1].data_ptr()
    key = last + (size if len(projected) == 1 else 0)
    return first, key, key + size


def _attention_struct(
    projected: "list[Tensor] | tuple[Tensor, ...]",
    weights: Tensor,
    lengths: tuple[Tensor, Tensor],
    sizes: tuple[int, int, int],
    causal: bool,
) -> FullAttentionStruct:
    heads, d_k, d_v = sizes
    query, key, value = _parts(projected, sizes)
    return FullAttentionStruct(
        query=query,
        key=key,
        value=value,
        weights=weights.data_ptr(),
        query_lengths=lengths[0].data_ptr(),
        key_lengths=lengths[1].data_ptr(),
        examples=len(weights),
        heads=heads,
        queries=projected[0].size(1),
        keys=projected[-1].size(1),
        d_k=d_k,
        d_v=d_v,
        query_stride=projected[0].size(2),
        key_stride=projected[-1].size(2),
        value_stride=projected[-1].size(2),
        out_stride=heads * d_v,
        weight_stride=weights.size(3),
        scale=1 / math.sqrt(d_k),
        is_causal=causal,
    )


def _attend(struct: FullAttentionStruct, used: Engine, *, backward: bool) -> None:
    error = required_library().transduce_attention(
        used.kernels, ctypes.addressof(struct), backward, torch.get_num_threads()
    )
    check(error, f"attention of {struct.queries:,} to {struct.keys:,} positions")


def cross_entropy_(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, ...] | None:
    """Turn logits, (positions, vocabulary), into (softmax − target) · total, where the engine can.

    Return, each (positions, 1): the logarithm of the sum of exponentials, the label's logit, the highest one,
    and the total of the exponentials after the highest logit was subtracted.
    """
    used = engine()
    if used is None or logits.device.type != "cpu" or logits.dtype != torch.float32:
        return None
    if not logits.is_contiguous() or labels.shape != logits.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(f"expected {len(logits)} labels (int64) for contiguous logits")
    labels = labels.contiguous()
    _share_threads()
    numbers = logits.new_empty(len(logits), 4)
    error = required_library().transduce_cross_entropy(
        *(used.kernels, logits.data_ptr(), labels.data_ptr(), *logits.shape, smoothing),
        *(numbers.data_ptr(), torch.get_num_threads()),
    )
    check(error, f"the loss of {len(logits):,} positions")
    return numbers.unsqueeze(2).unbind(1)
