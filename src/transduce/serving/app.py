"""The application: all APIs, the page, and what surrounds them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from transduce.serving import (
    api_deepl,
    api_deepl_documents,
    api_deepl_glossaries,
    api_libretranslate,
    api_opennmt,
    api_v1,
    api_v1_stored,
)
from transduce.serving.answers import error_answer, error_body
from transduce.serving.errors import RequestError
from transduce.serving.metrics import CONTENT_TYPE, Metrics
from transduce.serving.middleware import Gate
from transduce.serving.openapi import describe
from transduce.serving.server import Server
from transduce.serving.settings import ServerSettings

_APIS = (
    api_v1,
    api_v1_stored,
    api_libretranslate,
    api_deepl,
    api_deepl_glossaries,
    api_deepl_documents,
    api_opennmt,
)
_LONGEST_NAME = 100  # of a field that is named in an error
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def create_app(settings: ServerSettings) -> FastAPI:
    """Load the models and return the application."""
    server = Server(settings)
    metrics = Metrics(server.service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(metrics.keep_fresh())
        yield
        await server.finish()
        refreshing.cancel()
        await asyncio.to_thread(server.close)

    app = FastAPI(
        title="Transduce",
        version=version("transduce"),
        description="Translation with models of your own.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = server
    _add_operations(app, server, metrics)
    _add_page(app)
    for api in _APIS:
        app.include_router(api.router(server))
    describe(app)
    _add_error_handlers(app)
    app.add_middleware(Gate, metrics=metrics, max_body=settings.max_body, max_document=settings.max_document)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _add_operations(app: FastAPI, server: Server, metrics: Metrics) -> None:
    @app.get("/health", tags=["Operation"])
    async def health() -> dict[str, str]:
        """Answer as long as the process runs."""
        return {"status": "ok"}

    @app.get("/ready", tags=["Operation"], response_model=None, responses={503: {"description": "Not ready"}})
    async def ready() -> JSONResponse:
        """Answer 200 when requests are accepted, 503 when not."""
        is_ready = not server.is_stopping
        return JSONResponse({"status": "ready" if is_ready else "stopping"}, 200 if is_ready else 503)

    @app.get("/metrics", tags=["Operation"], response_class=PlainTextResponse)
    async def figures() -> Response:
        """Return figures for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    """Serve the page from memory: no path that a client sends reaches the file system."""
    folder = files("transduce.serving").joinpath("page")
    contents = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}

    @app.get("/", include_in_schema=False, response_class=HTMLResponse)
    async def page() -> Response:
        return Response(contents["index.html"], media_type="text/html; charset=utf-8")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        kind = _TYPES.get(name[name.rfind(".") :]) if name in contents else None
        if kind is None:
            raise HTTPException(404)
        return Response(
            contents[name], media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"}
        )


def _add_error_handlers(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)  # noqa: S101
        return error_answer(request, error)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        problem, remedy = _explain(error)
        return error_answer(request, RequestError(problem, remedy))

    async def by_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        problem = {404: "there is nothing here", 405: "this method is not possible here"}.get(
            error.status_code, "the request cannot be carried out"
        )
        body = error_body(request.url.path, problem, "see /openapi.json")
        headers = {"Allow": _allowed(app, request.url.path)} if error.status_code == 405 else error.headers
        return JSONResponse(body, error.status_code, headers)

    app.add_exception_handler(RequestError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_status)


def _allowed(app: FastAPI, path: str) -> str:
    """Return the methods of a path; the framework names those of the first route only."""
    described = app.openapi()["paths"]
    parts = path.split("/")
    methods: set[str] = set()
    for known, operations in described.items():
        pairs = zip(known.split("/"), parts, strict=False)
        if known.count("/") == path.count("/") and all("{" in own or own == part for own, part in pairs):
            methods.update(method.upper() for method in operations)
    return ", ".join(sorted(methods)) or "GET"


def _explain(error: RequestValidationError) -> tuple[str, str]:
    """Return what is wrong with a body in one line, without what the client sent."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")[:_LONGEST_NAME]
    if first["type"] == "json_invalid":
        return "the body is not valid JSON", "send an object in JSON"
    problem = "is missing" if first["type"] == "missing" else f"is not valid: {first['msg']}"
    return f"{where or 'the body'} {problem}", "see /openapi.json"
