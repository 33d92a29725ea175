"""Sentences that wait for a place in a batch: fair between requests, and each computed once.

Nothing here is locked; the scheduler does that.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.pieces import Piece
from transduce.decoding.settings import SearchSettings
from transduce.models.protocol import SequenceModel

Outcome: TypeAlias = list[Hypothesis] | Exception


@dataclass(frozen=True)
class Group:
    """What sentences must have in common to share a batch."""

    model: SequenceModel[Any, Any] = field(compare=False)
    model_id: int
    settings: SearchSettings
    prefix: tuple[int, ...]  # tokens that the decoder reads before every target
    in_engine: bool
    is_bulk: bool  # of large requests, which let small ones go first
    frame: tuple[int, int] = (0, 1)  # tokens before and after the text of every source
    phrases: int = 0  # that the targets must contain: each widens the beam by one

    @property
    def weight(self) -> int:
        """Its share of the computing time beside other groups."""
        return 1 if self.is_bulk else 4


@dataclass(eq=False)
class Request:
    """A request whose sentences are under way; ``on_outcome`` receives each, with its number."""

    on_outcome: Callable[[int, Outcome], None]
    tasks: "list[Task]" = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A sentence under way, for all requests that wait for it."""

    key: Hashable
    group: Group
    piece: Piece
    aligned: bool
    listeners: list[tuple[Request, int]] = field(default_factory=list)
    is_waiting: bool = True


class WaitingLine:
    """The sentences of all requests. Requests take turns, whatever their size."""

    def __init__(self) -> None:
        self._queues: dict[Group, OrderedDict[int, deque[Task]]] = {}  # by the identity of the request
        self._tasks: dict[Hashable, Task] = {}
        self._waiting: dict[Group, int] = {}

    def __len__(self) -> int:
        """Return the number of sentences that are waiting."""
        return sum(self._waiting.values())

    def groups(self) -> Iterator[Group]:
        """Yield the groups for which sentences are waiting."""
        return iter(self._waiting)

    def waiting_in(self, group: Group) -> int:
        """Return the number of sentences of a group that are waiting."""
        return self._waiting.get(group, 0)

    def add(self, request: Request, number: int, group: Group, piece: Piece, *, aligned: bool) -> None:
        """Queue a sentence of a request, or let the request share a sentence that is already under way."""
        content = tuple(piece.ids), tuple(map(tuple, piece.factors)), tuple(piece.prefix)
        key = group, content, tuple(map(tuple, piece.phrases)), aligned, _random_numbers_of(piece, group)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = Task(key, group, piece, aligned)
            self._waiting[group] = self.waiting_in(group) + 1
        task.listeners.append((request, number))
        request.tasks.append(task)
        if task.is_waiting:
            # In the queue of every request that wants it: the first whose turn it is brings it forward.
            self._queues.setdefault(group, OrderedDict()).setdefault(id(request), deque()).append(task)

    def take(self, group: Group, count: int) -> list[Task]:
        """Remove and return up to ``count`` sentences of a group, one of each request in turn."""
        queues, taken = self._queues.get(group, OrderedDict[int, deque[Task]]()), list[Task]()
        while queues and len(taken) < count:
            number, queue = queues.popitem(last=False)
            queues[number] = queue  # at the end
            task = queue[0]
            task.is_waiting = False
            taken.append(task)
            for request in {id(request): request for request, _ in task.listeners}.values():
                self._remove(task, request)
            self._count_one_less(group)
        return taken

    def _remove(self, task: Task, request: Request) -> None:
        """Remove a sentence from the queue of a request."""
        queues = self._queues[task.group]
        queues[id(request)] = deque(other for other in queues[id(request)] if other is not task)
        if not queues[id(request)]:
            del queues[id(request)]
        if not queues:
            del self._queues[task.group]

    def finish(self, task: Task) -> list[tuple[Request, int]]:
        """Forget a sentence that is computed; return the requests that wait for it, with its numbers."""
        if self._tasks.get(task.key) is task:  # after a cancellation, the same sentence may wait again
            del self._tasks[task.key]
        return task.listeners

    def clear(self) -> list[tuple[Request, int]]:
        """Forget all sentences; return the requests that wait for them, with their numbers."""
        listeners = [listener for task in self._tasks.values() for listener in task.listeners]
        self._queues, self._tasks, self._waiting = {}, {}, {}
        return listeners

    def cancel(self, request: Request) -> list[Task]:
        """Forget a request; return its running sentences that nobody else waits for."""
        abandoned = []
        for task in request.tasks:
            task.listeners = [listener for listener in task.listeners if listener[0] is not request]
            if task.listeners or self._tasks.get(task.key) is not task:
                continue
            del self._tasks[task.key]
            if task.is_waiting:
                task.is_waiting = False
                self._count_one_less(task.group)
            else:
                abandoned.append(task)
        for group in {task.group for task in request.tasks}:
            queues = self._queues.get(group)
            if queues is not None:
                queues.pop(id(request), None)
                if not queues:
                    del self._queues[group]
        request.tasks = []
        return abandoned

    def _count_one_less(self, group: Group) -> None:
        self._waiting[group] -= 1
        if not self._waiting[group]:
            del self._waiting[group]


def _random_numbers_of(piece: Piece, group: Group) -> Hashable:
    """Return what the random numbers of a sentence depend on: sampled sentences of equal text differ."""
    return (piece.line, piece.index) if group.settings.sample else None
