"""Beam search in C over sentences that join and leave a running batch."""

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from transduce.engine.native import check, required_library
from transduce.engine.packed_decoder import PackedDecoder
from transduce.engine.structures import SearchSettingsStruct
from transduce.models.protocol import SearchRequest, SearchResult

_FINISHED = 2  # the state of a slot
_STEPS = 1 << 30  # at a time: until a sentence is finished


@dataclass(frozen=True)
class Waiting:
    """A sentence that waits for a free slot."""

    ticket: int
    source: Tensor
    max_length: int  # of its target
    shortlist: Tensor | None


# Puts sentences into free slots: (search, slots, sentences)
AddToSlots = Callable[["RunningSearch", list[int], list[Waiting]], None]


class RunningSearch:
    """A beam search in which each sentence has its own position and its own limit.

    `add` queues a source and returns a ticket; `advance` computes until sentences are finished, and returns
    their results by ticket. A finished sentence's place is taken by the next one in the queue. The result of
    a sentence does not depend on the others.
    """

    def __init__(
        self,
        decoder: PackedDecoder,
        add_to_slots: AddToSlots,
        *,
        slots: int,
        beam: int,
        count: int,
        exact: bool,
        eos: int,
        forbidden: list[int],
        penalty: Callable[[int], float],
        has_shortlists: bool = False,
    ) -> None:
        """``slots`` sentences run at a time; ``penalty`` divides the score of a target of a given length.

        With ``has_shortlists``, every sentence has a list of the tokens that its target may contain.
        """
        self.decoder, self._add_to_slots = decoder, add_to_slots
        self.count, self._penalty = count, penalty
        self._has_shortlists, self._fewest = has_shortlists, 2 * beam + len(forbidden)
        self._queue: deque[Waiting] = deque()
        self._free, self._tickets = list(range(slots))[::-1], dict[int, int]()  # ticket of each busy slot
        self._limits: dict[int, int] = {}
        self._next = 0
        self._forbidden = torch.tensor(forbidden, dtype=torch.long)
        self._penalties = torch.empty(0, dtype=torch.double)
        settings = SearchSettingsStruct(
            forbidden=self._forbidden.data_ptr(),
            forbidden_count=len(forbidden),
            slots=slots,
            beam=beam,
            count=count,
            eos=eos,
            exact=exact,
            has_shortlists=has_shortlists,
        )
        library = required_library()
        self.handle = library.transduce_search_new(
            decoder.engine.kernels, ctypes.addressof(decoder.struct), ctypes.addressof(settings)
        )
        if not self.handle:
            raise ValueError(f"a search with a beam of {beam} for {slots} sentences is not possible")
        self._finalizer = weakref.finalize(self, library.transduce_search_free, self.handle)

    @classmethod
    def of_request(
        cls, decoder: PackedDecoder, add_to_slots: AddToSlots, request: SearchRequest, slots: int
    ) -> "RunningSearch":
        """Return a search with the settings of a request, without its limits."""
        return cls(
            decoder,
            add_to_slots,
            slots=slots,
            beam=request.beam,
            count=request.count,
            exact=request.exact,
            eos=request.eos,
            forbidden=list(request.forbidden),
            penalty=request.penalties.__getitem__,
            has_shortlists=request.shortlists is not None,
        )

    def __len__(self) -> int:
        """Return the number of sentences that are waiting or running."""
        return len(self._queue) + len(self._tickets)

    def add(self, source: Tensor, max_length: int, shortlist: Tensor | None = None) -> int:
        """Queue a source; its target has at most ``max_length`` tokens. Return a ticket.

        ``shortlist`` has the tokens that the target may contain, in ascending order.
        """
        if (shortlist is not None) != self._has_shortlists:
            raise ValueError("in a search with shortlists every sentence has one, in others none")
        if shortlist is not None and not self._fits(shortlist):
            raise ValueError(
                "a shortlist is out of range, out of order or has fewer tokens than the beam needs"
            )
        self._queue.append(Waiting(self._next, source, max(1, max_length), shortlist))
        self._next += 1
        return self._next - 1

    def _fits(self, shortlist: Tensor) -> bool:
        ids = shortlist.long()
        is_ascending = bool((ids[1:] > ids[:-1]).all())
        return (
            len(ids) >= self._fewest
            and is_ascending
            and int(ids[0]) >= 0
            and int(ids[-1]) < self.decoder.vocabulary
        )

    def advance(self, steps: int | None = None) -> dict[int, list[SearchResult]]:
        """Compute until a sentence is finished, or at most ``steps`` steps.

        Return the results of all finished sentences by ticket.
        """
        self._fill()
        library = required_library()
        error = library.transduce_search_advance(self.handle, steps or _STEPS, torch.get_num_threads())
        check(error, f"a step of {len(self._tickets):,} sentences")
        finished = {}
        for slot, ticket in list(self._tickets.items()):
            if library.transduce_search_state(self.handle, slot) == _FINISHED:
                finished[ticket] = list(self._results(slot))
                self._release(slot)
        return finished

    def cancel(self, ticket: int) -> None:
        """Drop a sentence, waiting or running; others can take its place at once."""
        self._queue = deque(waiting for waiting in self._queue if waiting.ticket != ticket)
        for slot, running in list(self._tickets.items()):
            if running == ticket:
                self._release(slot)

    def _release(self, slot: int) -> None:
        required_library().transduce_search_release(self.handle, slot)
        del self._tickets[slot]
        self._free.append(slot)

    def run(self) -> dict[int, list[SearchResult]]:
        """Finish all sentences; return their results by ticket."""
        results: dict[int, list[SearchResult]] = {}
        while len(self):
            results |= self.advance()
        return results

    def _fill(self) -> None:
        """Let waiting sentences take the free slots."""
        count = min(len(self._free), len(self._queue))
        if not count:
            return
        waiting = [self._queue.popleft() for _ in range(count)]
        slots = [self._free.pop() for _ in waiting]
        longest = max(sentence.max_length for sentence in waiting)
        self._extend_penalties(longest)
        self.decoder.reserve(longest)
        self._add_to_slots(self, slots, waiting)
        for slot, sentence in zip(slots, waiting, strict=True):
            self._tickets[slot], self._limits[slot] = sentence.ticket, sentence.max_length

    def _extend_penalties(self, longest: int) -> None:
        if longest < len(self._penalties):
            return
        penalties = [self._penalty(max(1, length)) for length in range(longest + 1)]
        self._penalties = torch.tensor(penalties, dtype=torch.double)
        required_library().transduce_search_penalties(
            self.handle, self._penalties.data_ptr(), len(self._penalties)
        )

    def _results(self, slot: int) -> Iterator[SearchResult]:
        """Yield the results of a finished slot, best first."""
        limit = self._limits[slot]
        tokens, sums = torch.empty(limit, dtype=torch.int32), torch.empty(limit)
        score = ctypes.c_double()
        for rank in range(self.count):
            length = required_library().transduce_search_result(
                *(self.handle, slot, rank, tokens.data_ptr(), sums.data_ptr(), ctypes.addressof(score))
            )
            if length < 0:
                return
            totals = [0.0, *sums[:length].tolist()]
            log_probabilities = [after - before for before, after in pairwise(totals)]
            yield SearchResult(tokens[:length].tolist(), log_probabilities, score.value)


def add_source(
    search: RunningSearch, slot: int, memory: Tensor, sentence: Waiting, first: Sequence[int]
) -> None:
    """Let a sentence, encoded as (source, d_model), take a slot.

    The decoder reads the tokens ``first`` (``bos``, and the prefix of every target) before it searches; they
    are no part of the result, nor of the maximum length.
    """
    listed = None if sentence.shortlist is None else sentence.shortlist.int().contiguous()
    read = torch.tensor(first, dtype=torch.long)
    search.decoder.reserve(len(first) - 1 + sentence.max_length)
    error = required_library().transduce_search_add_source(
        *(search.handle, slot, memory.data_ptr(), len(memory), sentence.max_length),
        *(read.data_ptr(), len(read)),
        *((None, 0) if listed is None else (listed.data_ptr(), len(listed))),
        torch.get_num_threads(),
    )
    check(error, f"a source of {len(memory):,} tokens")


def add_prompt(search: RunningSearch, slot: int, sentence: Waiting) -> None:
    """Let a prompt, (tokens,), take a slot; its continuation is searched for."""
    prompt = sentence.source.long().contiguous()
    search.decoder.reserve(len(prompt) + sentence.max_length)
    error = required_library().transduce_search_add_prompt(
        *(search.handle, slot, prompt.data_ptr(), len(prompt), sentence.max_length, torch.get_num_threads())
    )
    check(error, f"a prompt of {len(prompt):,} tokens")
