"""Answers in the shape that each API's clients expect."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from transduce.serving.errors import RequestError, TooLargeError

_OTHERS = ("/v1/", "/v2/", "/v3/", "/translator/")


def error_body(path: str, problem: str, remedy: str) -> dict[str, Any]:
    """Return the body of an error, as the API that a path belongs to reports errors."""
    if path.startswith("/v1/"):
        return {"error": {"message": problem, "remedy": remedy}}
    if path.startswith(("/v2/", "/v3/")):  # DeepL
        return {"message": problem, "detail": remedy}
    if path.startswith("/translator/"):  # OpenNMT-py
        return {"error": f"{problem}; {remedy}", "status": "error"}
    return {"error": problem}  # LibreTranslate


def error_answer(request: Request, error: RequestError) -> JSONResponse:
    """Return the answer to a request that failed for a reason that its client can correct."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    path, status = request.url.path, error.status
    if status == TooLargeError.status and is_libretranslate(path):
        status = RequestError.status
    return JSONResponse(error_body(path, _valid(error.problem), _valid(error.remedy)), status, headers)


def is_libretranslate(path: str) -> bool:
    """Return whether a path belongs to LibreTranslate's API, which has no code for texts over a limit."""
    return not path.startswith(_OTHERS)


def _valid(text: str) -> str:
    """Replace halves of surrogate pairs, which a client may have sent as a part of a code."""
    return text.encode("utf-8", "replace").decode()
