"""Kernels that production code reaches only through a whole step or search, called by themselves."""

import ctypes
import math

import pytest
import torch
from torch import Tensor

from transduce.decoding.hypotheses import Candidates
from transduce.engine import kernels

needs_kernels = pytest.mark.skipif(
    kernels.library() is None, reason="needs AVX-512 VNNI and a C compiler, for the kernels"
)


class AttentionStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "mask", "out", "own_rows", "rows")),
        *((name, ctypes.c_int64) for name in ("rows_stride", "past_length", "batch", "heads", "queries")),
        *((name, ctypes.c_int64) for name in ("length", "d_k", "d_v")),
        *((f"{name}_strides", ctypes.c_int64 * 3) for name in ("query", "key", "value")),
        ("scale", ctypes.c_float),
    )


class ChoiceStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "sums", "forbidden", "scores", "parents", "tokens")),
        *(
            (name, ctypes.c_int64)
            for name in ("sentences", "width", "vocabulary", "count", "forbidden_count")
        ),
    )


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """query (batch, heads, query, d_k), key and value (batch, heads, key, d), mask (batch, key)."""
    batch, heads, queries, d_k = query.shape
    length, d_v = value.shape[-2:]
    out = query.new_empty(batch, queries, heads, d_v)
    strides = [(ctypes.c_int64 * 3)(*part.stride()[:3]) for part in (query, key, value)]
    struct = AttentionStruct(
        *(part.data_ptr() for part in (query, key, value)),
        None if mask is None else mask.data_ptr(),
        *(out.data_ptr(), None, None, 0, 0),
        *(batch, heads, queries, length, d_k, d_v),
        *strides,
        1 / math.sqrt(d_k),
    )
    kernel = kernels.required_library().attend
    kernel.argtypes, kernel.restype = [ctypes.POINTER(AttentionStruct), ctypes.c_int], None
    kernel(struct, torch.get_num_threads())
    return out.transpose(1, 2)


def choose(logits: Tensor, sums: Tensor, count: int, forbidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores, parents and tokens of the best continuations: (sentences, count) each."""
    sentences, width, vocabulary = logits.shape
    sums, forbidden = sums.float().contiguous(), forbidden.long()
    scores = logits.new_empty(sentences, count)
    parents, tokens = (torch.empty(sentences, count, dtype=torch.long) for _ in range(2))
    struct = ChoiceStruct(
        *(part.data_ptr() for part in (logits, sums, forbidden, scores, parents, tokens)),
        *(sentences, width, vocabulary, count, len(forbidden)),
    )
    kernel = kernels.required_library().choose
    kernel.argtypes, kernel.restype = [ctypes.POINTER(ChoiceStruct), ctypes.c_int], None
    kernel(struct, torch.get_num_threads())
    return scores, parents, tokens


def choose_by_kernel(logits, beams, count, forbidden, rules, chooser):
    """Stand in for `transduce.decoding.beam._choose`: the same choice, with the kernel's rounding."""
    sums = torch.from_numpy(beams.sums)
    return Candidates.of(*choose(logits.contiguous(), sums, count, forbidden))
