"""What every request passes: limits of the body, headers for safety, the access log, figures."""

import json
import sys
import time
from typing import Any, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.metrics import Metrics

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


class BodyTooLarge(Exception):  # noqa: N818 (an answer, not an error of ours)
    """A body over the limit, noticed while it was read."""


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
    ) -> None:
        self._app, self._metrics = app, metrics
        self._max_body, self._max_document = max_body, max_document
        self._log = log or sys.stdout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500
        limit = (
            self._max_document if "document" in scope["path"] or "file" in scope["path"] else self._max_body
        )
        read = 0

        async def limited_receive() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > limit:
                    raise BodyTooLarge
            return message

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS.items() if name not in present),
                ]
            await send(message)

        try:
            if _declared_length(scope) > limit:
                raise BodyTooLarge
            await self._app(scope, limited_receive, guarded_send)
        except BodyTooLarge:
            await _refuse(guarded_send, scope, limit)
        finally:
            seconds = time.perf_counter() - begin
            path = _route(scope)
            self._metrics.count(path, status, seconds)
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


async def _refuse(send: Send, scope: Scope, limit: int) -> None:
    from transduce.serving.answers import error_body

    body = json.dumps(
        error_body(scope["path"], f"the request has more than {limit:,} bytes", "send less at a time")
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
