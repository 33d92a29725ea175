"""The scheduler under cancellations, failures and unloaded models: nothing is lost and nothing is kept."""

import asyncio
import gc
import random
import threading
import time
import weakref

import pytest
from test_scheduler import LINES, make_translator, texts, translate

from transduce.decoding import running_batch
from transduce.decoding.pieces import Piece
from transduce.decoding.settings import SearchSettings
from transduce.serving.errors import UnavailableError
from transduce.serving.scheduler import Scheduler
from transduce.serving.waiting import Group, Request, WaitingLine


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture
def scheduler():
    scheduler = Scheduler(2)
    yield scheduler
    scheduler.close()


def wait_until_idle(scheduler: Scheduler) -> None:
    end = time.monotonic() + 20
    while (scheduler.running or scheduler._abandoned) and time.monotonic() < end:
        time.sleep(0.01)


def assert_nothing_is_left(scheduler: Scheduler) -> None:
    wait_until_idle(scheduler)
    line = scheduler._line
    assert (scheduler.waiting, scheduler.running) == (0, 0)
    assert not scheduler._abandoned
    assert not scheduler._running
    assert not scheduler._computes_plain
    assert (line._queues, line._tasks, line._waiting) == ({}, {}, {})


@pytest.mark.parametrize("seed", [1, 2])
def test_random_cancellations_leave_nothing_behind_and_other_results_are_right(scheduler, translator, seed):
    plain = make_translator(no_repeat_ngram=2)  # not computed by the engine
    expected = {id(t): texts(t(LINES)) for t in (translator, plain)}
    chance, wrong = random.Random(seed), []

    async def client(number: int) -> None:
        for _ in range(6):
            chosen = plain if number % 9 == 0 else translator
            picked = [chance.randrange(len(LINES)) for _ in range(chance.choice([1, 1, 2, 5, 30]))]
            work = asyncio.create_task(
                translate(scheduler, chosen, [LINES[n] for n in picked], is_bulk=len(picked) > 16)
            )
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.02)
                work.cancel()
            try:
                found = texts(await work)
            except asyncio.CancelledError:
                continue
            if found != [expected[id(chosen)][n] for n in picked]:
                wrong.append(picked)

    async def run() -> None:
        await asyncio.gather(*(client(number) for number in range(40)))

    asyncio.run(run())
    assert wrong == []
    assert_nothing_is_left(scheduler)


def test_a_sentence_that_is_wanted_again_after_a_cancellation_can_be_cancelled_too():
    """The first computation of it must not take the second one along when it ends."""
    line, group, piece = WaitingLine(), Group(None, 0, SearchSettings(), (), True, False), _piece(7)
    first, second = Request(lambda number, outcome: None), Request(lambda number, outcome: None)
    line.add(first, 0, group, piece, aligned=False)
    (running,) = line.take(group, 1)
    line.cancel(first)
    line.add(second, 0, group, piece, aligned=False)
    line.finish(running)
    line.cancel(second)
    assert len(line) == 0
    assert not list(line.groups())


def test_a_failure_while_abandoned_sentences_are_dropped_is_counted_once(scheduler, translator, monkeypatch):
    advance = running_batch.EngineBatch.advance
    may_go, is_failing = threading.Event(), threading.Event()

    def stall(self, steps):
        may_go.wait(10)
        if is_failing.is_set():
            raise RuntimeError("the search failed")
        return advance(self, steps)

    monkeypatch.setattr(running_batch.EngineBatch, "advance", stall)
    monkeypatch.setattr(running_batch.PlainBatch, "advance", stall)

    async def run() -> None:
        gone = asyncio.create_task(translate(scheduler, translator, LINES[:20]))
        kept = asyncio.create_task(translate(scheduler, translator, LINES[20:30]))
        await asyncio.sleep(0.05)
        gone.cancel()
        is_failing.set()
        await asyncio.sleep(0.01)
        may_go.set()
        assert isinstance((await asyncio.gather(kept, return_exceptions=True))[0], RuntimeError)

    asyncio.run(run())
    assert_nothing_is_left(scheduler)


def test_requests_under_way_are_told_when_the_scheduler_is_closed(translator):
    scheduler = Scheduler(1)

    async def run() -> None:
        work = asyncio.create_task(translate(scheduler, translator, LINES * 20, is_bulk=True))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(scheduler.close)
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(work, 10)

    asyncio.run(run())
    assert_nothing_is_left(scheduler)


def test_an_unloaded_model_is_freed_as_soon_as_its_batches_are_released(scheduler):
    translator = make_translator()
    asyncio.run(translate(scheduler, translator, LINES))
    model = weakref.ref(translator.model)
    del translator
    wait_until_idle(scheduler)
    scheduler.release()
    end = time.monotonic() + 5
    while model() is not None and time.monotonic() < end:
        gc.collect()
        time.sleep(0.05)
    assert model() is None


def test_released_batches_are_made_again(scheduler, translator):
    for _ in range(3):
        assert texts(asyncio.run(translate(scheduler, translator, LINES))) == texts(translator(LINES))
        scheduler.release()


def test_a_loop_that_was_closed_does_not_end_the_threads(scheduler, translator):
    loop = asyncio.new_event_loop()
    work = loop.create_task(translate(scheduler, translator, LINES))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()  # without cancelling what runs
    assert texts(asyncio.run(translate(scheduler, translator, LINES[:5]))) == texts(translator(LINES[:5]))
    assert all(worker.is_alive() for worker in scheduler._workers)
    del work


def _piece(*ids: int) -> Piece:
    return Piece(" ".join(map(str, ids)), list(ids), 0, 0, [], [])
