"""Kernels that other code reaches only through a whole step or search, called by themselves."""

import ctypes
import math

import pytest
import torch
from torch import Tensor

from transduce.decoding.hypotheses import Candidates
from transduce.engine.native import Engine, library, required_library, supported_engines

ENGINES = [pytest.param(each, id=each.name) for each in supported_engines()]
needs_engine = pytest.mark.skipif(
    library() is None, reason="the engine is not compiled: it needs a C compiler"
)
# Every instruction set of this processor, and plain C
every_engine = pytest.mark.parametrize(
    "engine", ENGINES or [pytest.param(None, marks=pytest.mark.skip(reason="the engine is not compiled"))]
)
LONG = ctypes.c_long


class AttentionStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "keys", "values", "out", "scores", "weights")),
        *((name, LONG) for name in ("queries", "length", "d_k", "d_v")),
        *((f"{name}_stride", LONG) for name in ("query", "key", "value", "out", "weight")),
        ("scale", ctypes.c_float),
    )


class PastAttentionStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "keys", "values", "past", "out", "scores", "rows")),
        *((name, LONG) for name in ("row", "first_row", "length", "page_size", "heads", "d_k", "d_v")),
        ("scale", ctypes.c_float),
    )


class ChoiceStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "sums", "forbidden", "shortlist", "scores")),
        *((name, ctypes.c_void_p) for name in ("parents", "tokens")),
        *((name, LONG) for name in ("width", "vocabulary", "stride", "count", "forbidden_count")),
    )


def attend(engine: Engine, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Attend with one head: query (queries, d_k), key (keys, d_k), value (keys, d_v) → values and weights."""
    (queries, d_k), (length, d_v) = query.shape, value.shape
    stride = -(-length // 16) * 16
    keys = torch.zeros(d_k, stride)
    keys[:, :length] = key.t()
    out, weights, scores = torch.empty(queries, d_v), torch.empty(queries, length), torch.empty(4, stride)
    parts = query.contiguous(), keys, value.contiguous(), out, scores, weights
    struct = AttentionStruct(
        *(part.data_ptr() for part in parts),
        *(queries, length, d_k, d_v),
        *(d_k, stride, d_v, d_v, length),
        1 / math.sqrt(d_k),
    )
    _call("attend", engine, ctypes.byref(struct))
    return out, weights


def attend_past(
    engine: Engine, query: Tensor, keys: Tensor, values: Tensor, rows: Tensor, length: int
) -> Tensor:
    """Attend with all heads of one hypothesis to the positions of its past.

    query (heads, d_k), keys and values (pages, rows, page size, heads, d), rows (length,) → (heads, d_v).
    """
    heads, d_k = query.shape
    _, cache_rows, page_size, _, d_v = values.shape
    out, scores = torch.empty(heads, d_v), torch.empty(heads, length + 16)
    rows = (rows - cache_rows // 2).int().contiguous()
    pages = [(ctypes.c_void_p * len(part))(*(page.data_ptr() for page in part)) for part in (keys, values)]
    scratch = torch.empty(length, dtype=torch.long)
    struct = PastAttentionStruct(
        query.data_ptr(),
        *map(ctypes.addressof, pages),
        *(part.data_ptr() for part in (rows, out, scores, scratch)),
        *(int(rows[-1]), cache_rows // 2, length, page_size, heads, d_k, d_v),
        1 / math.sqrt(d_k),
    )
    _call("attend_past", engine, ctypes.byref(struct))
    return out


def choose(
    engine: Engine, logits: Tensor, sums: Tensor, count: int, forbidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores, parents and tokens of the best continuations: (sentences, count) each."""
    sentences, width, vocabulary = logits.shape
    stride = -(-vocabulary // 16) * 16
    room = torch.full((sentences, width, stride), -torch.inf)
    room[:, :, :vocabulary] = logits
    sums, forbidden = sums.float().contiguous(), forbidden.long()
    scores = torch.empty(sentences, count)
    parents, tokens = (torch.empty(sentences, count, dtype=torch.int32) for _ in range(2))
    for n in range(sentences):
        parts = room[n], sums[n], forbidden
        struct = ChoiceStruct(
            *(part.data_ptr() for part in parts),
            None,
            *(part[n].data_ptr() for part in (scores, parents, tokens)),
            *(width, vocabulary, stride, count, len(forbidden)),
        )
        _call("choose", engine, ctypes.byref(struct))
    return scores, parents.long(), tokens.long()


def activate(engine: Engine, activation: int, x: Tensor) -> Tensor:
    """Apply an activation to x, (rows, width)."""
    y = x.clone()
    _call("activate", engine, activation, ctypes.c_void_p(y.data_ptr()), *map(ctypes.c_int64, y.shape))
    return y


def _call(name: str, engine: Engine, *arguments: object) -> None:
    kernel = getattr(required_library(), f"transduce_test_{name}")
    kernel.restype = None
    kernel(ctypes.c_void_p(engine.kernels), *arguments)


def choose_by_kernel(engine: Engine):
    """Return a stand-in for `transduce.decoding.beam._choose`, with the rounding of the kernel."""

    def choose_tokens(logits, beams, count, forbidden, rules, chooser):
        sums = torch.from_numpy(beams.sums)
        return Candidates.of(*choose(engine, logits.contiguous(), sums, count, forbidden))

    return choose_tokens
