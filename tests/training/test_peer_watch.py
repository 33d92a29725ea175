"""Processes that notice that another one has ended."""

import signal
import socket
import sys
import threading
import time
from contextlib import suppress

import pytest
from torch import distributed

from ranks import PROCESSES
from transduce.errors import TrainingError
from transduce.training import peer_watch
from transduce.training.peer_watch import PeerWatch, explain_lost_process, is_lost_connection, watching

LIMIT = 60  # seconds


@pytest.fixture
def ends():
    """Both ends of a connection, of which the test keeps the second one."""
    first, second = socket.socketpair()
    second.settimeout(LIMIT)
    with first, second:
        yield first, second


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_connection_that_closes_interrupts_the_main_thread(ends):
    own, other = ends
    other.close()
    with pytest.raises(TrainingError, match="another process"), explain_lost_process(), watching([own]):
        wait_until(lambda: False)


def test_training_that_is_called_while_an_error_is_handled_is_interrupted_too(ends):
    own, other = ends
    other.close()
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(TrainingError, match="another process"), explain_lost_process(), watching([own]):
            wait_until(lambda: False)


def test_code_that_handles_errors_is_interrupted_too(ends):
    own, other = ends
    other.close()

    def go_on():
        while True:
            with suppress(Exception):
                wait_until(lambda: False)

    with pytest.raises(TrainingError, match="another process"), explain_lost_process(), watching([own]):
        go_on()


def test_a_process_that_says_goodbye_may_end(ends):
    own, other = ends
    with watching([own]) as watch:
        other.sendall(b".")
        other.close()
        wait_until(lambda: not own.recv(1, socket.MSG_PEEK))
    assert not watch.has_lost_a_process


@pytest.mark.parametrize("fails", [False, True])
def test_goodbye_is_said_at_a_good_end_only(ends, fails):
    own, other = ends
    with suppress(KeyError), watching([own]):
        if fails:
            raise KeyError
    received = other.recv(1)
    assert received == (b"" if fails else b".")


def test_a_loss_is_reported_at_the_end_of_a_save(ends):
    own, other = ends
    saved = []

    def save(watch):
        with watch.delayed():
            other.close()
            wait_until(lambda: watch.has_lost_a_process)
            saved.append(True)

    with pytest.raises(TrainingError, match="another process"), watching([own]) as watch:
        save(watch)
    assert saved


def test_an_error_of_the_process_itself_is_not_replaced(ends):
    own, other = ends

    def fail(watch):
        try:
            raise LookupError
        finally:
            other.close()
            wait_until(lambda: watch.has_lost_a_process)
            time.sleep(0.01)

    with pytest.raises(LookupError), watching([own]) as watch:
        fail(watch)


def test_a_watch_that_is_interrupted_while_it_starts_is_stopped(ends, monkeypatch):
    """Its thread would end the process later."""
    own, other = ends
    other.close()
    start = PeerWatch.start

    def start_slowly(watch):
        start(watch)
        wait_until(lambda: False)

    monkeypatch.setattr(PeerWatch, "start", start_slowly)
    with pytest.raises(TrainingError, match="another process"), explain_lost_process(), watching([own]):
        pytest.fail("the block has begun")
    assert "peer-watch" not in {thread.name for thread in threading.enumerate()}


def test_everything_is_as_before_afterwards(ends):
    handler, threads = signal.getsignal(signal.SIGURG), threading.active_count()
    with watching([ends[0]]):
        assert threading.active_count() == threads + 1
    assert (signal.getsignal(signal.SIGURG), threading.active_count()) == (handler, threads)


def wait_without_python(connection, path):
    """Wait where nothing can be interrupted, as in a collective that never ends."""
    peer_watch.UNWINDING_SECONDS = 0.1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    sys.stderr = path.open("w")
    with watching([connection]):
        time.sleep(LIMIT)


def test_a_process_that_cannot_be_interrupted_is_ended(ends, tmp_path):
    own, other = ends
    process = PROCESSES.Process(target=wait_without_python, args=(own, tmp_path / "errors"))
    process.start()
    own.close()
    other.close()
    process.join(LIMIT)
    process.kill()
    assert process.exitcode == 2
    (line,) = (tmp_path / "errors").read_text().splitlines()
    assert "--resume" in line


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] "


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"{GLOO}Read error [127.0.0.1]:8428: Connection reset by peer. This is typically"),
        RuntimeError(f"{GLOO}Connection closed by peer [127.0.0.1]:2690. This is typically"),
        RuntimeError(f"{GLOO}Write error [127.0.0.1]:2690: Broken pipe"),
        RuntimeError(
            "[/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1000ms for recv to complete"
        ),
        distributed.DistBackendError(
            "NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited or there was a network error"
        ),
        distributed.DistNetworkError("Connection was likely closed. Connection reset by peer"),
    ],
)
def test_lost_connections_are_recognized(error):
    assert is_lost_connection(error)
    with pytest.raises(TrainingError, match="another process"), explain_lost_process():
        raise error


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "[/gloo/transport/tcp/pair.cc:598] op.preamble.length <= op.nbytes. 24 vs 16",
        "the socket that the user opened was closed",
    ],
)
def test_other_errors_are_not_taken_for_lost_connections(message):
    with pytest.raises(RuntimeError) as raised, explain_lost_process():
        raise RuntimeError(message)
    assert str(raised.value) == message
