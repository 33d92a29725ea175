"""Errors that a client of the server can correct, with the status code of the answer."""

from transduce.errors import TransduceError


class RequestError(TransduceError):
    """A request that cannot be carried out."""

    status = 400
    retry_after: int | None = None  # seconds


class ForbiddenError(RequestError):
    """A missing or unknown API key."""

    status = 403


class NotFoundError(RequestError):
    """Something that does not exist, such as a glossary."""

    status = 404


class SlowError(RequestError):
    """A body that did not arrive in time."""

    status = 408


class GoneError(RequestError):
    """A client that has closed its connection: nobody reads this answer, but it is counted."""

    status = 499


class TooLargeError(RequestError):
    """A request over one of the limits."""

    status = 413


class BusyError(RequestError):
    """More requests than the server, or one key or address, may have under way."""

    status = 429

    def __init__(self, problem: str, retry_after: int) -> None:
        super().__init__(problem, f"try again in {retry_after} s")
        self.retry_after = retry_after


class UnavailableError(RequestError):
    """A server that is starting or stopping, or a translation that took too long."""

    status = 503
    retry_after = 10


class FailedError(RequestError):
    """A failure of the server, which its client can do nothing about."""

    status = 500
