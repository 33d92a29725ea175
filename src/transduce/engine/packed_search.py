"""Beam search in C, with a model whose step is: `advance` in `kernels.c`."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

from transduce.engine.kernels import there
from transduce.engine.packed_step import PackedStep, Places, Step
from transduce.nn.state import DecoderState

_NO_NUMBERS = 3


@dataclass(frozen=True)
class Search:
    """What is looked for: the ``count`` best targets of each source; see `beam_search` in `decoding`."""

    limits: Sequence[int]  # the greatest length of each
    penalties: Sequence[float]  # by which sums are divided: of length 0, 1, … up to the greatest
    beam: int
    count: int
    exact: bool
    bos: int
    eos: int
    silent: Sequence[int]  # tokens that are never said


class Said(NamedTuple):
    """A target that was found."""

    tokens: list[int]  # the last is ``eos``, unless it was cut off
    log_probabilities: list[float]
    score: float


class _Ending(ctypes.Structure):
    _fields_ = (
        ("score", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("length", "origin", "token")),
        ("sum", ctypes.c_float),
    )


class _Search(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("limits", "penalties", "silent")),
        *((name, ctypes.c_int64) for name in ("silents", "beam", "count", "eos", "exact")),
        *((name, ctypes.c_void_p) for name in ("going", "rows", "next_rows", "origins", "tokens", "sums")),
        *((name, ctypes.c_void_p) for name in ("endings", "ended", "logits", "scores", "parents", "chosen")),
        ("targets", ctypes.c_int64),
    )


def can_search(step: PackedStep, state: DecoderState, search: Search) -> bool:
    """Whether `packed_search` can: no text is too long, and there are tokens enough to choose from."""
    return (
        state.memory_mask.size(-1) <= step.longest
        and all(1 <= limit <= step.longest for limit in search.limits)
        and 2 * search.beam + len(search.silent) <= step.vocabulary
    )


def packed_search(step: PackedStep, state: DecoderState, search: Search) -> list[list[Said]]:
    """For each source, at most ``count`` targets, best first. The state must be new, and is used up.

    Raises ArithmeticError if logits are no numbers.
    """
    sources, longest = state.memory_mask.size(0), max(search.limits, default=1)
    if state.length or state.width > 1 or len(search.limits) != sources:
        raise ValueError(f"{len(search.limits)} limits for {sources} sources, {state.length} tokens in")
    targets, candidates = sources * search.beam, (sources, 2 * search.beam)
    # What targets never need, if their limit is far away, takes no memory: it is not written.
    origins, tokens = (torch.empty(longest + 1, targets, dtype=torch.long) for _ in range(2))
    sums = torch.empty(longest + 1, targets)
    tokens[0], sums[0] = search.bos, 0
    ended, going = torch.zeros(sources, dtype=torch.long), torch.arange(sources)
    endings = (_Ending * targets)()
    held = {
        "limits": torch.tensor(search.limits, dtype=torch.long),
        "penalties": torch.tensor(search.penalties, dtype=torch.double),
        "silent": torch.tensor(search.silent, dtype=torch.long),
        **{"origins": origins, "tokens": tokens, "sums": sums, "ended": ended, "going": going},
        **{name: torch.empty(targets, longest, dtype=torch.long) for name in ("rows", "next_rows")},
        **{name: torch.empty(candidates, dtype=torch.long) for name in ("parents", "chosen")},
        "logits": torch.empty(targets, step.vocabulary),
        "scores": torch.empty(candidates),
    }
    asked = _Search(
        **{name: part.data_ptr() for name, part in held.items()},
        endings=ctypes.addressof(endings),
        silents=len(search.silent),
        beam=search.beam,
        count=search.count,
        eos=search.eos,
        exact=search.exact,
        targets=targets,
    )
    now, past = step.prepared(state, targets, longest)
    now.home, now.rows_stride = going.data_ptr(), longest
    advance, threads = there().advance, torch.get_num_threads()
    while now.sources:
        if now.length == now.capacity:
            past = _more_room(step, state, now, targets)
        trouble = advance(ctypes.byref(now), past.pointers, ctypes.byref(asked), threads)
        if trouble == _NO_NUMBERS:
            raise ArithmeticError("the logits are no numbers")
        if trouble:
            raise MemoryError(f"no room for a step of {targets:,} targets")
    lists = [part[: now.length].tolist() for part in (origins, tokens, sums)]
    return [
        [_said(endings[source * search.beam + rank], *lists) for rank in range(min(count, search.count))]
        for source, count in enumerate(ended.tolist())
    ]


def _more_room(step: PackedStep, state: DecoderState, now: Step, targets: int) -> Places:
    for cache in state.caches:
        cache.length = now.length
    past = step.past(state, targets)
    now.capacity = past.capacity
    return past


def _said(
    ending: _Ending, origins: list[list[int]], tokens: list[list[int]], sums: list[list[float]]
) -> Said:
    """All tokens, and the log-probability of each."""
    said, totals, place = [ending.token], [ending.sum], ending.origin
    for length in range(ending.length, 0, -1):
        said.append(tokens[length][place])
        totals.append(sums[length][place])
        place = origins[length][place]
    totals.append(0.0)
    return Said(said[::-1], [after - before for before, after in pairwise(reversed(totals))], ending.score)
