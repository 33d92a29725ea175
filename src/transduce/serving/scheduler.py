"""Threads that compute running batches, and let waiting sentences join them between two steps."""

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.pieces import Piece
from transduce.decoding.running_batch import (
    PIECES_AT_A_TIME,
    EngineBatch,
    PlainBatch,
    RunningBatch,
    align_piece,
    can_join,
)
from transduce.decoding.translator import Translator
from transduce.serving.errors import UnavailableError
from transduce.serving.waiting import Group, Outcome, Request, Task, WaitingLine

STEPS = 3  # of a batch, before waiting sentences may join it
BULK_STEPS = 1  # of a batch that others wait for
HYPOTHESES = 256  # of all sentences of a batch: the keys and values of more do not stay in the caches
BULK_HYPOTHESES = 96  # of a batch that others wait for
BULK = 16  # sentences; larger requests let smaller ones go first
SWITCH_SECONDS = 0.00005  # after which the thread of requests lets a batch go on; Python's default is 0.005
_ENOUGH, _GUESS = 50, 50.0  # sentences from which the speed is computed, and a speed until then
_CLOSING_SECONDS = 5.0
IDLE_SECONDS = 30.0  # after which the memory of an unused batch is freed


@dataclass
class Statistics:
    """What has been computed so far."""

    sentences: int = 0
    tokens: int = 0  # of targets
    shared: int = 0  # sentences that were not computed, because the same one was under way
    seconds: float = 0.0  # of computing, summed over all threads
    steps: int = 0
    places: int = 0  # summed over all steps: sentences that the batch has room for
    occupied: int = 0  # summed over all steps: sentences in the batch


class _Batch:
    """The batch of a group in one thread."""

    def __init__(self, group: Group) -> None:
        hypotheses = BULK_HYPOTHESES if group.is_bulk else HYPOTHESES
        self.places = max(1, hypotheses // group.settings.width) if group.in_engine else PIECES_AT_A_TIME
        self.steps = BULK_STEPS if group.is_bulk else STEPS
        self.tasks: dict[int, Task] = {}  # by ticket
        self.spent = 0.0  # seconds of computing, divided by the group's weight
        self.last_used = time.perf_counter()
        self._group = group

    @cached_property
    def running(self) -> RunningBatch:
        """The search itself."""
        group = self._group
        if group.in_engine:
            return EngineBatch(group.model, group.settings, group.prefix, self.places)
        return PlainBatch(group.model, group.settings, group.prefix)


class Scheduler:
    """Computes the sentences of all requests on ``threads`` threads; each has batches of its own."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.statistics = Statistics()
        self._line = WaitingLine()
        self._changed = threading.Condition()
        self._abandoned: set[Task] = set()
        self._running: Counter[Group] = Counter()  # sentences in the batches of all threads
        self._is_closed = False
        self._releases = 0  # how often all threads were asked to free what they do not use
        # Searches outside of the engine take long steps: only one thread computes them at a time.
        self._computes_plain = False
        self._workers = [
            threading.Thread(target=self._work, name=f"batches-{number}", daemon=True)
            for number in range(threads)
        ]
        sys.setswitchinterval(SWITCH_SECONDS)
        for worker in self._workers:
            worker.start()

    @property
    def waiting(self) -> int:
        """The number of sentences that wait for a place in a batch."""
        with self._changed:
            return len(self._line)

    @property
    def running(self) -> int:
        """The number of sentences in batches."""
        with self._changed:
            return self._running.total()

    @property
    def sentences_per_second(self) -> float:
        """How many sentences are translated per second while all threads compute; a guess at first."""
        counted = self.statistics
        if counted.sentences < _ENOUGH:
            return _GUESS
        return max(0.1, self.threads * counted.sentences / max(counted.seconds, 1e-3))

    async def search(
        self, translator: Translator, pieces: Sequence[Piece], *, is_bulk: bool, aligned: bool = False
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each piece; blank ones have none.

        If this is cancelled, the pieces leave their batches, unless another request waits for the same.
        """
        loop = asyncio.get_running_loop()
        found: list[list[Hypothesis]] = [[] for _ in pieces]
        wanted = [number for number, piece in enumerate(pieces) if not piece.is_blank]
        if not wanted:
            return found
        done: asyncio.Future[None] = loop.create_future()
        missing = len(wanted)

        def receive(number: int, outcome: Outcome) -> None:
            nonlocal missing
            if done.done():
                return
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
                return
            found[number] = outcome
            missing -= 1
            if not missing:
                done.set_result(None)

        request = Request(lambda number, outcome: _call_soon(loop, receive, number, outcome))
        groups = [_group_of(translator, pieces[number], is_bulk) for number in wanted]
        with self._changed:
            self._require_open()
            for number, group in zip(wanted, groups, strict=True):
                self._line.add(request, number, group, pieces[number], aligned=aligned)
            self._changed.notify_all()
        try:
            await done
        except BaseException:
            self._cancel(request)
            raise
        return found

    def close(self) -> None:
        """End the threads; what is under way fails."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(_CLOSING_SECONDS)  # a step that takes longer ends with the process
        with self._changed:
            listeners = self._line.clear()
            self._running.clear()
            self._abandoned.clear()
        for request, number in listeners:
            request.on_outcome(number, _stopping())

    def release(self) -> None:
        """Free the memory of unused batches now: a model was unloaded, which they may hold."""
        with self._changed:
            self._releases += 1
            self._changed.notify_all()

    def _require_open(self) -> None:
        if self._is_closed:
            raise _stopping()

    def _cancel(self, request: Request) -> None:
        with self._changed:
            self._abandoned.update(self._line.cancel(request))
            self._changed.notify_all()

    # What follows runs in the threads.

    def _work(self) -> None:
        torch.set_num_threads(1)
        batches: dict[Group, _Batch] = {}
        releases = 0
        with torch.inference_mode():
            while True:
                with self._changed:
                    group = self._choose(batches)
                    while group is None and not self._is_closed and releases == self._releases:
                        self._changed.wait(IDLE_SECONDS if batches else None)
                        _free_idle(batches, IDLE_SECONDS)
                        group = self._choose(batches)
                    if self._is_closed:
                        break
                    is_asked, releases = releases != self._releases, self._releases
                    joining = self._admit(group, batches) if group else []
                if group:
                    self._advance(group, batches, joining)
                    del group, joining  # they hold the model while the thread waits
                _free_idle(batches, 0.0 if is_asked else IDLE_SECONDS)

    def _choose(self, batches: dict[Group, _Batch]) -> Group | None:
        """Return the group that has had least of the time it should have; the caller holds the lock."""
        candidates = {group for group, batch in batches.items() if batch.tasks}
        candidates |= {group for group in self._line.groups() if self._share(group, batches)}
        if not candidates:
            return None
        least = min((batches[group].spent for group in candidates if group in batches), default=0.0)
        for group in candidates:
            batch = batches.setdefault(group, _Batch(group))
            if not batch.tasks:  # it was idle, which earns it no credit
                batch.spent = max(batch.spent, least)
        return min(candidates, key=lambda group: (batches[group].spent, group.is_bulk))

    def _share(self, group: Group, batches: dict[Group, _Batch]) -> int:
        """Return how many waiting sentences this thread should take, so that all threads have as many."""
        batch, waiting = batches.get(group) or _Batch(group), self._line.waiting_in(group)
        if not group.in_engine:
            return 0 if self._computes_plain else min(waiting, batch.places)
        fair = -(-(waiting + self._running[group]) // self.threads)
        return max(0, min(waiting, min(fair, batch.places) - len(batch.tasks)))

    def _admit(self, group: Group, batches: dict[Group, _Batch]) -> list[Task]:
        """Take waiting sentences out of the line; the caller holds the lock."""
        batch = batches[group]
        joining = self._line.take(group, self._share(group, batches))
        self._running[group] += len(joining)
        self._computes_plain |= not group.in_engine
        self.statistics.steps += batch.steps
        self.statistics.places += batch.steps * batch.places
        self.statistics.occupied += batch.steps * (len(batch.tasks) + len(joining))
        return joining

    def _advance(self, group: Group, batches: dict[Group, _Batch], joining: list[Task]) -> None:
        """Let sentences join the batch of a group and compute a few steps of it."""
        batch, begin = batches[group], time.perf_counter()
        finished: dict[Task, Outcome] = {}
        outside = deque(joining)  # not yet in the batch
        try:
            while outside:
                batch.tasks[batch.running.add(outside[0].piece)] = outside[0]
                outside.popleft()
            self._drop_abandoned(batch)
            for ticket, hypotheses in batch.running.advance(batch.steps).items():
                task = batch.tasks[ticket]
                finished[task] = self._aligned(task, hypotheses)
                del batch.tasks[ticket]
        except Exception as error:  # whatever happened, the requests must be told
            finished |= dict.fromkeys({*outside, *batch.tasks.values()} - finished.keys(), error)
            del batches[group]
        batch.last_used = time.perf_counter()
        batch.spent += (batch.last_used - begin) / group.weight
        self._deliver(group, finished, batch.last_used - begin)

    def _aligned(self, task: Task, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        if not task.aligned:
            return hypotheses
        return align_piece(task.group.model, task.piece, hypotheses, task.group.prefix, task.group.frame)

    def _drop_abandoned(self, batch: _Batch) -> None:
        if not self._abandoned:
            return
        with self._changed:
            dropped = [(ticket, task) for ticket, task in batch.tasks.items() if task in self._abandoned]
            for ticket, task in dropped:
                del batch.tasks[ticket]
                self._abandoned.discard(task)
                self._count_fewer_running(task.group, 1)
        for ticket, _ in dropped:
            batch.running.cancel(ticket)

    def _deliver(self, group: Group, finished: dict[Task, Outcome], seconds: float) -> None:
        with self._changed:
            self.statistics.seconds += seconds
            if group.in_engine and not finished:
                return
            if not group.in_engine:
                self._computes_plain = False
                self._changed.notify_all()
            self._count_fewer_running(group, len(finished))
            listeners = [(self._line.finish(task), outcome) for task, outcome in finished.items()]
            self._abandoned.difference_update(finished)
            self._count(finished, sum(len(several) - 1 for several, _ in listeners if several))
        for several, outcome in listeners:
            for request, number in several:
                request.on_outcome(number, outcome)

    def _count_fewer_running(self, group: Group, count: int) -> None:
        self._running[group] -= count
        if not self._running[group]:
            del self._running[group]  # a key would keep the model in memory

    def _count(self, finished: dict[Task, Outcome], shared: int) -> None:
        self.statistics.sentences += len(finished)
        self.statistics.shared += shared
        self.statistics.tokens += sum(
            len(outcome[0].tokens) for outcome in finished.values() if isinstance(outcome, list) and outcome
        )


def _free_idle(batches: dict[Group, _Batch], seconds: float) -> None:
    """Free the batches that have not been used for so long."""
    for group, batch in list(batches.items()):
        if not batch.tasks and time.perf_counter() - batch.last_used >= seconds:
            del batches[group]


def _stopping() -> UnavailableError:
    return UnavailableError("the server is stopping", "try again when it has been restarted")


def _group_of(translator: Translator, piece: Piece, is_bulk: bool) -> Group:
    model, settings = translator.model, translator.settings
    return Group(
        model,
        id(model),
        settings,
        tuple(translator.tokenizer.target_prefix),
        can_join(model, piece, settings),
        is_bulk,
        translator.tokenizer.source_frame,
        len(piece.phrases),
    )


def _call_soon(
    loop: asyncio.AbstractEventLoop, receive: Callable[[int, Outcome], None], number: int, outcome: Outcome
) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(receive, number, outcome)
