"""What every request passes: limits of the body, headers for safety, the access log, figures."""

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.answers import error_body
from transduce.serving.errors import FailedError, RequestError, SlowError, TooLargeError, UnavailableError
from transduce.serving.log import log_failure
from transduce.serving.metrics import Metrics

BODY_SECONDS = 30.0  # in which the body of a request must arrive, besides the time that its size takes
_SLOWEST = 20_000  # bytes per second
_DISCARD, _DISCARD_SECONDS = 8 << 20, 3.0  # of a body that is refused
_UPLOADS = ("/v1/documents", "/v2/document", "/translate_file")  # whose bodies are documents

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}


class _Refused(Exception):  # noqa: N818 (an answer, not an error of ours)
    """Ends the reading of a body that is too large or too slow; `Gate` answers, whoever catches this."""


class Gate:
    """Limits bodies, adds headers, and records each request without its texts."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        *,
        max_body: int,
        max_document: int,
        log: TextIO | None = None,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._app, self._metrics = app, metrics
        self._max_body, self._max_document = max_body, max_document
        self._log, self._body_seconds = log or sys.stdout, body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        path = scope["path"]
        limit = self._max_document if path in _UPLOADS else self._max_body
        passage = _Passage(receive, send, limit, self._body_seconds)
        try:
            if (length := _declared_length(scope)) > limit:
                passage.refuse_large()
                passage.is_hopeless = length > limit + _DISCARD
            else:
                await self._app(scope, passage.receive, passage.send)
        except _Refused:
            pass
        except asyncio.CancelledError:  # the server is stopping, and this took too long
            passage.refusal = UnavailableError("the server is stopping", "try again later")
        except Exception as error:
            log_failure(f"a request to {_route(scope)} failed", error)
            # What happened may name files, so that it goes to the log and not to the client.
            passage.refusal = FailedError("the server failed", "tell its operator, who finds why in its log")
        try:
            await passage.end(path)
        finally:
            self._write(scope, passage.status, time.perf_counter() - begin)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        path = _route(scope)
        self._metrics.count(path, status, seconds)
        with suppress(OSError, ValueError):  # a log that nobody reads any more must not fail requests
            self._record(scope, path, status, seconds)

    def _record(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        """Write one line of JSON: never the text, the query or the key of a request."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": (scope.get("client") or ("-",))[0],
            "method": scope["method"],
            "path": path,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
        }
        print(json.dumps(entry), file=self._log, flush=True)


def _route(scope: Scope) -> str:
    """Return the path as it was declared: ``/v2/glossaries/{id}``; ``-`` if there is none."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "-"))


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


class _Passage:
    """The messages of one request: its body is limited in size and time, and its answer gets headers."""

    def __init__(self, receive: Receive, send: Send, limit: int, seconds: float) -> None:
        self._receive, self._send, self._limit = receive, send, limit
        self._read, self._is_read, self._seconds = 0, False, seconds
        self._has_begun = False
        self.refusal: RequestError | None = None
        self.is_hopeless = False  # more is to come than can be discarded
        self.status = 500

    async def receive(self) -> Message:
        """Receive a part of the body; afterwards, wait for the client to go away."""
        if self._is_read:
            return await self._receive()
        begin = time.perf_counter()
        try:
            message = await asyncio.wait_for(self._receive(), self._seconds)
        except asyncio.TimeoutError:
            self.refusal = SlowError("the body of the request did not arrive in time", "send it faster")
            raise _Refused from None
        size = len(message.get("body", b""))
        self._seconds = max(0.0, self._seconds - (time.perf_counter() - begin) + size / _SLOWEST)
        self._read += size
        self._is_read = not message.get("more_body", False)
        if self._read > self._limit:
            self.refuse_large()
            raise _Refused
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, unless the request was refused meanwhile."""
        if self.refusal is not None:
            return
        if message["type"] == "http.response.start":
            self._has_begun, self.status = True, message["status"]
            present = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name, value) for name, value in _HEADERS.items() if name not in present),
            ]
        await self._send(message)

    def refuse_large(self) -> None:
        """Answer that the body is over the limit."""
        self.refusal = TooLargeError(
            f"the request has more than {self._limit:,} bytes", "send less at a time"
        )

    async def _discard_rest(self) -> None:
        """Read what the client is still sending, within limits: before that, many do not read an answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._is_read and self._read < self._limit + _DISCARD:
                    message = await self._receive()
                    self._read += len(message.get("body", b""))
                    self._is_read = not message.get("more_body", False)

    async def end(self, path: str) -> None:
        """Send the refusal, if there is one. An answer that has begun stays incomplete, which clients see."""
        refusal = self.refusal
        if refusal is None:
            return
        if self._has_begun:
            self.status = refusal.status
            return
        if not self.is_hopeless:
            await self._discard_rest()
        body = json.dumps(error_body(path, refusal.problem, refusal.remedy)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),  # the rest of the body is not read
        ]
        if refusal.retry_after is not None:
            headers.append((b"retry-after", str(refusal.retry_after).encode()))
        self.refusal = None
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
