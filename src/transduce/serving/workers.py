"""Several server processes on one port: one that dies or hangs is replaced."""

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType

from transduce.errors import TransduceError, is_out_of_memory, reason_of, remedy_for
from transduce.machine import keep_memory
from transduce.serving.log import log
from transduce.serving.run import serve
from transduce.serving.settings import ServerSettings

_SPAWN = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_BEAT = 2.0  # seconds between two signs of life
_HANGING = 60.0  # seconds without any
_PAUSE = 1.0  # before a process that could not start is started again
_TICK = 0.3


class Worker:
    """A server process, seen from its parent. It sends an error, or signs of life once it serves."""

    def __init__(self, settings: ServerSettings, listener: socket.socket) -> None:
        self._reader, writer = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(target=_work, args=(settings, listener, writer))
        with _interrupt_ignored():  # Ctrl-C reaches all processes of a terminal; workers leave it to us
            self.process.start()
        writer.close()
        self.error: tuple[str, str] | None = None
        self.is_ready, self.began, self.last_sign = False, time.monotonic(), time.monotonic()

    def listen(self) -> None:
        """Read what the process has sent."""
        with suppress(EOFError, OSError):
            while self._reader.poll():
                message = self._reader.recv()
                self.last_sign = time.monotonic()
                if message is None:
                    self.is_ready = True
                else:
                    self.error = message

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait until the process says something or ends."""
        wait([self._reader, self.process.sentinel], seconds)


class Workers:
    """Keeps ``settings.workers`` processes running until it is told to stop."""

    def __init__(self, settings: ServerSettings, listener: socket.socket, metrics: Path) -> None:
        self._settings, self._listener, self._metrics = settings, listener, metrics
        self._workers: list[Worker] = []
        self._must_stop = threading.Event()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._must_stop.set()

    def run(self, on_started: Callable[[], None]) -> None:
        """Start the processes, replace those that end, and stop them all."""
        try:
            # If the models cannot be loaded, one process finds out as well as all of them.
            for count in (1, self._settings.workers - 1):
                self._start(count)
            if not self._must_stop.is_set():
                on_started()
            while not self._must_stop.wait(_TICK):
                self._keep_alive()
        finally:
            self._end()

    def _start(self, count: int) -> None:
        started = [Worker(self._settings, self._listener) for _ in range(count)]
        self._workers += started
        for worker in started:
            while not worker.is_ready and not self._must_stop.is_set():
                worker.wait(_TICK)
                worker.listen()
                if worker.error is not None:
                    raise TransduceError(*worker.error)
                if not worker.is_alive and not worker.is_ready:
                    raise TransduceError(
                        f"a server process ended while it started ({_how(worker)})", "see what it printed"
                    )

    def _keep_alive(self) -> None:
        begin = time.monotonic()
        for number, worker in enumerate(self._workers):
            worker.listen()
            is_hanging = worker.is_ready and time.monotonic() - worker.last_sign > _HANGING
            if worker.is_alive and not is_hanging:
                continue
            if is_hanging:
                worker.process.kill()
            worker.process.join()
            problem = worker.error[0] if worker.error else _how(worker)
            log(f"warning: server process {worker.process.pid} has ended ({problem}); starting another one")
            self._forget_figures(worker)
            if not worker.is_ready:
                self._must_stop.wait(_PAUSE)
            self._workers[number] = Worker(self._settings, self._listener)
        if time.monotonic() - begin > _HANGING / 2:  # we were asleep ourselves, and so may they have been
            for worker in self._workers:
                worker.last_sign = time.monotonic()

    def _end(self) -> None:
        for worker in self._workers:
            if worker.is_alive:
                worker.process.terminate()
        end = time.monotonic() + self._settings.timeout + _HANGING
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.process.kill()

    def _forget_figures(self, worker: Worker) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.process.pid or 0, str(self._metrics))  # type: ignore[no-untyped-call]


def run_workers(settings: ServerSettings, listener: socket.socket, on_started: Callable[[], None]) -> None:
    """Serve in several processes until SIGTERM or Ctrl-C; what was accepted is finished first."""
    with tempfile.TemporaryDirectory(prefix="transduce-", ignore_cleanup_errors=True) as folder:
        metrics = Path(folder) / "metrics"
        metrics.mkdir()
        os.environ[_METRICS_VARIABLE] = str(metrics)  # workers inherit it
        data = settings.data or Path(folder) / "data"
        workers = Workers(settings.model_copy(update={"data": data}), listener, metrics)
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, workers.stop) for number in numbers]
        try:
            workers.run(on_started)
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            del os.environ[_METRICS_VARIABLE]


def _how(worker: Worker) -> str:
    code = worker.process.exitcode or 0
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@contextmanager
def _interrupt_ignored() -> Iterator[None]:
    """Let a new process ignore Ctrl-C from its first moment."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# What follows runs in the worker processes.


def _work(settings: ServerSettings, listener: socket.socket, writer: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tasks: list[asyncio.Task[None]] = []
    try:
        keep_memory()
        serve(settings, listener, lambda: tasks.append(asyncio.create_task(_give_signs(writer))))
    except Exception as error:
        if not (told := _told(error)):
            raise
        writer.send(told)
        sys.exit(2)


def _told(error: Exception) -> tuple[str, str] | None:
    """Return what a user must know about an error at the start; ``None`` if it is a fault of ours."""
    if isinstance(error, TransduceError):
        return error.problem, error.remedy
    if isinstance(error, OSError):
        return f"cannot use {error.filename}: {reason_of(error)}", remedy_for(error)
    return ("out of memory", "serve fewer models, or with fewer workers") if is_out_of_memory(error) else None


async def _give_signs(writer: Connection) -> None:
    with suppress(OSError):  # the parent has ended
        while True:
            writer.send(None)
            await asyncio.sleep(_BEAT)


def _end_with_parent() -> None:
    """Stop when the parent was killed: otherwise, nobody would replace this process, or end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
