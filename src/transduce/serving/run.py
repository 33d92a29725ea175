"""Run the server: one process, or several on one port."""

import os

import python_multipart  # noqa: F401 (FastAPI reads forms with it)
import uvicorn
from fastapi import FastAPI

from transduce.serving.app import create_app
from transduce.serving.settings import ServerSettings

_VARIABLE = "TRANSDUCE_SERVER"  # how the settings reach worker processes
_GRACE = 30  # seconds in which accepted requests are finished


def run(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted is finished first."""
    os.environ[_VARIABLE] = settings.model_dump_json()
    uvicorn.run(
        "transduce.serving.run:app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
    )


def app() -> FastAPI:
    """Return the application of a worker process."""
    return create_app(ServerSettings.model_validate_json(os.environ[_VARIABLE]))
