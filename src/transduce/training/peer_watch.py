"""Processes of a run that end unexpectedly: the others notice it, wherever they are, and end too.

A collective of gloo fails soon after another process has ended, but a process that prepares data or computes
a long step calls none, and NCCL may wait for ever. Therefore each process keeps a connection to the first
one, on which nothing is sent until the end of the run. The operating system closes it when a process ends,
however that happens, and after two minutes if the other machine does not answer any more.
"""

import os
import re
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch
from torch import distributed

from transduce.errors import TrainingError

CONNECT_SECONDS = 20.0  # to connect at the start; a process without a connection is not watched
UNWINDING_SECONDS = 30.0  # that a process has to end after another one has; then it is ended
EXIT_CODE = 2
_GREETING_SECONDS = 2.0  # within which a process that has connected sends the secret
_GOODBYE, _WELCOME = b".", b"+"
_LOST_CONNECTION = re.compile(
    r"connection (closed|reset|refused)|closed by peer|broken pipe|socket|timed? ?out|remote process", re.I
)


class _InterruptedError(BaseException):
    """Ends what the main thread is doing; it is no `Exception`, which a library might catch and replace."""


def lost_process() -> TrainingError:
    """Return the error of a process that cannot go on because another one has ended."""
    return TrainingError(
        "another process of this run has ended",
        "see its message (a process that was killed leaves none), then continue with --resume",
    )


@contextmanager
def explain_lost_process() -> Iterator[None]:
    """Raise a `TrainingError` where a `PeerWatch`, gloo or NCCL report that another process is lost."""
    try:
        yield
    except _InterruptedError:
        raise lost_process() from None
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise lost_process() from error


def is_lost_connection(error: RuntimeError) -> bool:
    """Tell whether a collective has raised this error because another process does not answer."""
    message = str(error)
    is_of_a_collective = isinstance(error, distributed.DistError) or re.search("gloo|nccl", message, re.I)
    return bool(is_of_a_collective and _LOST_CONNECTION.search(message))


class PeerWatch:
    """Watches the other processes of a run, in a thread.

    If one of them ends before it has stopped its own watch, the main thread is interrupted by an exception,
    which `explain_lost_process` turns into a `TrainingError`. A process that cannot be interrupted, because
    it waits in a collective of NCCL, is ended after a while.
    """

    def __init__(self, connections: list[socket.socket]) -> None:
        self._connections = connections
        self.has_lost_a_process = False
        self._delays = 0
        self._ended = threading.Event()
        self._waker, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name="peer-watch", daemon=True)
        self._handled = sys.exc_info()[1]  # if training is called where an exception is handled
        self._can_interrupt = (
            hasattr(signal, "SIGURG") and threading.current_thread() is threading.main_thread()
        )

    def start(self) -> None:
        """Begin to watch."""
        if self._can_interrupt:
            # By default this signal has no effect: it is harmless if anything else sends it.
            self._previous = signal.signal(signal.SIGURG, self._interrupt)
        self._thread.start()

    def stop(self, *, with_goodbye: bool = False) -> None:
        """End the watch, unless it has ended; without a goodbye, the other processes take it for a loss."""
        self._ended.set()
        for connection in self._connections:
            with suppress(OSError):
                if with_goodbye:
                    connection.sendall(_GOODBYE)
                connection.shutdown(socket.SHUT_RDWR)
        self._waker.close()
        if self._thread.is_alive():
            self._thread.join()
        for connection in (*self._connections, self._wakes):
            connection.close()
        if self._can_interrupt and signal.getsignal(signal.SIGURG) == self._interrupt:
            signal.signal(signal.SIGURG, self._previous or signal.SIG_DFL)

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Finish a ``with`` block, such as a save, before the loss of another process is reported."""
        self._delays += 1
        try:
            yield
        finally:
            self._delays -= 1
        if self.has_lost_a_process:
            raise lost_process()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        is_failing = sys.exc_info()[1] is not self._handled  # with a message of its own, which tells more
        if self.has_lost_a_process and not self._delays and not self._ended.is_set() and not is_failing:
            raise _InterruptedError

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection in (*self._connections, self._wakes):
                selector.register(connection, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if self._ended.is_set():
                        return
                    if not _has_said_goodbye(key.fileobj):  # type: ignore[arg-type]
                        self._report_loss()
                        return
                    selector.unregister(key.fileobj)

    def _report_loss(self) -> None:
        self.has_lost_a_process = True
        if self._can_interrupt:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGURG)  # type: ignore[arg-type]
        while self._delays:
            if self._ended.wait(1.0):
                return
        if not self._ended.wait(UNWINDING_SECONDS):
            sys.stderr.write(f"error: {lost_process()}\n")
            sys.stderr.flush()
            os._exit(EXIT_CODE)


@contextmanager
def watching(connections: list[socket.socket]) -> Iterator[PeerWatch]:
    """Watch the processes at the other ends of connections, while a ``with`` block lasts."""
    watch = PeerWatch(connections)
    try:
        watch.start()
        yield watch
        watch.stop(with_goodbye=True)
    finally:  # also if the watch was interrupted by itself
        watch.stop()


def _has_said_goodbye(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == _GOODBYE
    except OSError:
        return False


def connect_peers(rank: int, size: int) -> list[socket.socket]:
    """Connect every process with the first one; all of them must call this, after they have joined."""
    listener = _listen(size) if rank == 0 else None
    port = listener.getsockname()[1] if listener else 0
    offer = torch.tensor([port, secrets.randbits(62)])
    distributed.broadcast(offer, 0)
    port, secret = int(offer[0]), int(offer[1]).to_bytes(8, "big")
    if listener:
        with listener:
            connections = _accept(listener, size - 1, secret)
    else:
        connections = _connect(port, secret) if port else []
    for connection in connections:
        connection.settimeout(None)
        _notice_dead_machines(connection)
    return connections


def _listen(size: int) -> socket.socket | None:
    with suppress(OSError):
        family = socket.getaddrinfo(os.environ["MASTER_ADDR"], None)[0][0]
        return socket.create_server(("", 0), family=family, backlog=size)
    return None


def _accept(listener: socket.socket, count: int, secret: bytes) -> list[socket.socket]:
    """Accept the connections of the other processes; a stranger's is closed and does not stop the others'."""
    connections: list[socket.socket] = []
    deadline = time.monotonic() + CONNECT_SECONDS
    while len(connections) < count and (left := deadline - time.monotonic()) > 0:
        with suppress(OSError):
            listener.settimeout(left)
            connection, _ = listener.accept()
            connection.settimeout(min(left, _GREETING_SECONDS))
            try:
                is_ours = connection.recv(len(secret), socket.MSG_WAITALL) == secret
            except OSError:
                is_ours = False
            if is_ours:
                connection.sendall(_WELCOME)
                connections.append(connection)
            else:
                connection.close()
    return connections


def _connect(port: int, secret: bytes) -> list[socket.socket]:
    with suppress(OSError):
        connection = socket.create_connection((os.environ["MASTER_ADDR"], port), CONNECT_SECONDS)
        connection.sendall(secret)
        if connection.recv(1) == _WELCOME:
            return [connection]
        connection.close()
    return []


def _notice_dead_machines(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # after two minutes instead of two hours
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
