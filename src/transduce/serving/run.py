"""Run the server in this process."""

import asyncio
import math
import signal
import socket
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import python_multipart  # noqa: F401 (FastAPI reads forms with it)
import uvicorn
from fastapi import FastAPI

from transduce.serving.app import create_app
from transduce.serving.protocol import TimedProtocol
from transduce.serving.settings import ServerSettings

MOST_CONNECTIONS = 1000  # of one process; further ones are answered with 503


class StoppingServer(uvicorn.Server):
    """Uvicorn's server; it tells the application at once that it is to stop, and ends without a signal."""

    def __init__(
        self, config: uvicorn.Config, on_started: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_started, self._on_stop = on_started, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what was accepted; a second Ctrl-C ends at once."""
        self._on_stop()
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def serve(settings: ServerSettings, listener: socket.socket, on_started: Callable[[], None]) -> None:
    """Load the models, and serve in this process; ``on_started`` is called in the running event loop."""
    app = create_app(settings)
    server = StoppingServer(server_config(settings, app), on_started, app.state.server.stop)
    _run(server.serve(sockets=[listener]))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run until the server stops, in uvloop's event loop, which takes less time, where there is one."""
    try:
        import uvloop
    except ImportError:  # on Windows
        asyncio.run(work)
    else:
        uvloop.run(work)


def server_config(settings: ServerSettings, app: FastAPI) -> uvicorn.Config:
    """Return what uvicorn must know."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(settings.timeout),
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
    )
