"""HTTP connections that clients cannot keep open without using them."""

import asyncio
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

with suppress(ImportError):  # on Windows, where uvicorn reads requests in Python
    import httptools  # noqa: F401 (uvicorn reads requests with it)

HEADER_SECONDS = 20.0  # in which a client must send the header of a request
LARGEST_HEADER = 64 << 10
READING_SECONDS = 60.0  # in which a client must read something of an answer that does not fit into buffers

_Base: Any = AutoHTTPProtocol


class TimedProtocol(_Base):  # type: ignore[misc]
    """Uvicorn's protocol with time limits for headers that do not end and for answers that are not read.

    Uvicorn itself limits the time between two requests only, and `middleware.Gate` that of the body.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None
    _header_size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived: a part of a header, or of a body."""
        super().data_received(data)
        self._header_size += len(data)
        if self._is_answering:
            self._cancel(self._header_timer)
            self._header_timer, self._header_size = None, 0
        elif self._header_size > LARGEST_HEADER:  # h11 has such a limit, httptools has none
            self.transport.abort()
        elif self._header_timer is None:
            self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._cancel(self._header_timer)
        self._cancel(self._reading_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not read its answer as fast as it is sent."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Note that the client has read most of what was sent."""
        self._cancel(self._reading_timer)
        self._reading_timer = None
        super().resume_writing()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_header(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._end_slow_header)

    def _end_slow_header(self) -> None:
        self._header_timer = None
        if not self._is_answering:
            self.transport.abort()

    def _expect_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._reading_timer = self.loop.call_later(READING_SECONDS, self._end_slow_reading, left)

    def _end_slow_reading(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:  # slow, but not stuck
            self._expect_reading()
        else:
            self.transport.abort()

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
