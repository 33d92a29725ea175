"""Servers for tests of faults: a small random model, in this process or behind the command."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from test_scheduler import LINES  # noqa: E402

from builders import small_config  # noqa: E402
from transduce import artifact  # noqa: E402
from transduce.data.tokenizer_training import train_tokenizer  # noqa: E402
from transduce.models.build import build  # noqa: E402
from transduce.serving.run import StoppingServer, server_config  # noqa: E402
from transduce.serving.settings import ServedModel, ServerSettings  # noqa: E402


def write_model(folder: Path, *, seed: int = 1) -> Path:
    """Write a model folder."""
    tokenizer = train_tokenizer(LINES, LINES, kind="bpe", size=300)
    config = small_config(d_model=32, d_ff=48, heads=2)
    artifact.save(build(config, tokenizer.vocabulary, seed=seed).eval(), folder, tokenizer)
    return folder


def settings_for(*folders: Path, **changes) -> ServerSettings:
    """Return the settings of a server whose models translate between made-up pairs of languages."""
    pairs = [("de", "en"), ("en", "de"), ("fr", "en")]
    models = [
        ServedModel(folder=folder, source=source, target=target)
        for folder, (source, target) in zip(folders, pairs, strict=False)
    ]
    return ServerSettings(models=models, **{"threads": 1, "precision": "float32", **changes})


class Running:
    """A server in a thread of this process."""

    def __init__(self, settings: ServerSettings, **gate) -> None:
        from transduce.serving.app import create_app

        self.app = create_app(settings)
        self.state = self.app.state.server
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        config = server_config(settings, self.app)
        self.server = StoppingServer(config, lambda: None, self.state.stop)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def __enter__(self) -> "Running":
        self._thread.start()
        end = time.monotonic() + 30
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)
        return self

    def __exit__(self, *_) -> None:
        self.state.stop()
        self.server.should_exit = True
        self._thread.join(90)
        assert not self._thread.is_alive()

    def ask(self, path: str, body: object = None, **headers: str) -> "Answer":
        return ask(self.port, path, body, **headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=40)

    def idle(self, seconds: float = 20) -> bool:
        """Wait until nothing is computed any more."""
        service, end = self.state.service, time.monotonic() + seconds
        while time.monotonic() < end:
            if not (service.pending or service.scheduler.running or service.scheduler.waiting):
                return True
            time.sleep(0.02)
        return False


class Answer:
    """The answer to a request."""

    def __init__(self, status: int, headers, content: bytes) -> None:
        self.status, self.headers, self.content = status, headers, content

    @property
    def json(self):
        return json.loads(self.content)


def ask(port: int, path: str, body: object = None, *, method: str | None = None, **headers: str) -> Answer:
    """Send a request; a body that is not bytes is sent as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if data is not None:
        names.setdefault("content-type", "application/json")
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data,
        names,
        method=method or ("POST" if data is not None else "GET"),
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


class Command:
    """``transduce serve`` in a process of its own."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "transduce", "serve", *map(str, words)]
        environment = {name: value for name, value in os.environ.items() if name != "TRANSDUCE_API_KEYS"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.output, self.errors = [], []
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in ((self.output, self.process.stdout), (self.errors, self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def wait_until_serving(self, seconds: float = 90) -> int:
        """Return the port."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.output:
                if found := re.match(r"serving .* on http://[^ ]*:(\d+) ", line):
                    return int(found[1])
            time.sleep(0.05)
        raise AssertionError(f"it does not serve: {self.output} {self.errors}")

    def workers(self) -> list[int]:
        """Return the ids of the worker processes."""
        found = subprocess.run(
            check=False,
            args=["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
        )
        return [int(line.split()[0]) for line in found.stdout.splitlines() if "spawn_main" in line]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 90) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.end(seconds)

    def end(self, seconds: float = 90) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(5)
        return code


@contextmanager
def serving(*words: object) -> Iterator[Command]:
    """Run ``transduce serve`` with these options."""
    command = Command(*words)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait(10)
