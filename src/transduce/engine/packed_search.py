"""Beam search in C over a packed step: `advance` in `kernels.c`, one call per step of the search."""

import ctypes
from itertools import pairwise

import torch

from transduce.engine.kernels import required_library
from transduce.engine.packed_step import PackedState, PackedStep, Pointers, StepStruct
from transduce.models.protocol import SearchRequest, SearchResult

_NAN_LOGITS = 3  # the error code of `advance`


class EndingStruct(ctypes.Structure):
    """A hypothesis that has ended."""

    _fields_ = (
        ("score", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("length", "origin", "token")),
        ("sum", ctypes.c_float),
    )


class SearchStruct(ctypes.Structure):
    """The request and the bookkeeping of a search."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("limits", "penalties", "forbidden")),
        *((name, ctypes.c_int64) for name in ("forbidden_count", "beam", "count", "eos", "exact")),
        *(
            (name, ctypes.c_void_p)
            for name in ("unfinished", "rows", "next_rows", "origins", "tokens", "sums")
        ),
        *((name, ctypes.c_void_p) for name in ("endings", "ended", "logits", "scores", "parents", "chosen")),
        ("targets", ctypes.c_int64),
    )


def can_search(step: PackedStep, state: PackedState, request: SearchRequest) -> bool:
    """Return whether `packed_search` can run this search: lengths and vocabulary must suit the kernel."""
    return (
        state.memory_mask.size(1) <= step.max_length
        and all(1 <= limit <= step.max_length for limit in request.max_lengths)
        and 2 * request.beam + len(request.forbidden) <= step.vocabulary
    )


def packed_search(step: PackedStep, state: PackedState, request: SearchRequest) -> list[list[SearchResult]]:
    """Return up to ``count`` results per source, best first. The state must be new, and is used up.

    Raises `ArithmeticError` if the logits are NaN.
    """
    sources, longest = state.memory_mask.size(0), max(request.max_lengths, default=1)
    if state.length or state.width > 1 or len(request.max_lengths) != sources:
        raise ValueError(
            f"a search needs a new state and one limit per source, not {len(request.max_lengths)} limits for "
            f"{sources} sources and a state of length {state.length}"
        )
    targets, candidates = sources * request.beam, (sources, 2 * request.beam)
    # Pages of these tensors that are never written take no memory, however large the limits are.
    origins, tokens = (torch.empty(longest + 1, targets, dtype=torch.long) for _ in range(2))
    sums = torch.empty(longest + 1, targets)
    tokens[0], sums[0] = request.bos, 0
    ended, unfinished = torch.zeros(sources, dtype=torch.long), torch.arange(sources)
    endings = (EndingStruct * targets)()
    tensors = {
        "limits": torch.tensor(request.max_lengths, dtype=torch.long),
        "penalties": torch.tensor(request.penalties, dtype=torch.double),
        "forbidden": torch.tensor(request.forbidden, dtype=torch.long),
        **{"origins": origins, "tokens": tokens, "sums": sums, "ended": ended, "unfinished": unfinished},
        **{name: torch.empty(targets, longest, dtype=torch.long) for name in ("rows", "next_rows")},
        **{name: torch.empty(candidates, dtype=torch.long) for name in ("parents", "chosen")},
        "logits": torch.empty(targets, step.vocabulary),
        "scores": torch.empty(candidates),
    }
    search = SearchStruct(
        **{name: part.data_ptr() for name, part in tensors.items()},
        endings=ctypes.addressof(endings),
        forbidden_count=len(request.forbidden),
        beam=request.beam,
        count=request.count,
        eos=request.eos,
        exact=request.exact,
        targets=targets,
    )
    struct, pointers = step.prepare(state, targets, longest)
    struct.own_rows, struct.rows_stride = unfinished.data_ptr(), longest
    advance, threads = required_library().advance, torch.get_num_threads()
    while struct.sources:
        if struct.length == struct.capacity:
            pointers = _grow(step, state, struct, targets)
        error = advance(ctypes.byref(struct), pointers.layers, ctypes.byref(search), threads)
        if error == _NAN_LOGITS:
            raise ArithmeticError("the logits are NaN")
        if error:
            raise MemoryError(f"cannot allocate memory for a step of {targets:,} hypotheses")
    history = [part[: struct.length].tolist() for part in (origins, tokens, sums)]
    return [
        [
            _result(endings[source * request.beam + rank], *history)
            for rank in range(min(count, request.count))
        ]
        for source, count in enumerate(ended.tolist())
    ]


def _grow(step: PackedStep, state: PackedState, struct: StepStruct, targets: int) -> Pointers:
    """Make room for more positions."""
    for cache in state.caches:
        cache.length = struct.length
    pointers = step.pointers(state, targets)
    struct.capacity = pointers.capacity
    return pointers


def _result(
    ending: EndingStruct, origins: list[list[int]], tokens: list[list[int]], sums: list[list[float]]
) -> SearchResult:
    """Follow a hypothesis back to its start."""
    path, totals, place = [ending.token], [ending.sum], ending.origin
    for length in range(ending.length, 0, -1):
        path.append(tokens[length][place])
        totals.append(sums[length][place])
        place = origins[length][place]
    totals.append(0.0)
    log_probabilities = [after - before for before, after in pairwise(reversed(totals))]
    return SearchResult(path[::-1], log_probabilities, ending.score)
