"""Answers in the shape that each API's clients expect."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from transduce.serving.errors import RequestError


def error_body(path: str, status: int, problem: str, remedy: str) -> dict[str, Any]:
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
    body = error_body(request.url.path, error.status, error.problem, error.remedy)
    return JSONResponse(body, error.status, headers)
