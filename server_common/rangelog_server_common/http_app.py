"""An application of JSON over HTTP, with its description at /openapi.json.

What holds: every response is JSON; every operation has a summary, a description, an example and its error responses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from rangelog_core.errors import InternalError, InvalidArgument, RangelogError
from rangelog_server_common.http_answers import error_response, shown
from rangelog_server_common.http_callers import OPEN_PATH

VERSION = "1"
"""Of the interface: the `v1` of its paths."""
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


def json_app(routers: Iterable[APIRouter], *, title: str, about: str) -> FastAPI:
    """Return an application without its guard. `about`: the first paragraph of its description."""
    app = FastAPI(
        title=title, version=VERSION, description=about, openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False, telemetry=_NO_TELEMETRY,
    )  # fmt: skip
    for each in routers:
        app.include_router(each)
    document: bytes | None = None

    @app.get(OPEN_PATH, include_in_schema=False)
    async def openapi() -> Response:
        nonlocal document
        if document is None:
            document = await asyncio.to_thread(description_of, app)  # off the loop that serves producers
        return Response(document, media_type="application/json")

    app.add_exception_handler(RangelogError, _refuse)
    app.add_exception_handler(UnicodeEncodeError, _refuse_text)
    app.add_exception_handler(RequestValidationError, _refuse_form)
    app.add_exception_handler(HTTPException, _refuse_request)
    app.add_exception_handler(Exception, _fail)  # raised on after the answer: the guard logs it
    return app


def description_of(app: FastAPI) -> bytes:
    """Return the OpenAPI document as JSON; the same bytes for the same application."""
    made: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for path in made["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # bad input is a 400 with the form of all errors
    for name in ("HTTPValidationError", "ValidationError"):
        made["components"]["schemas"].pop(name, None)
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}, {}]
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RangelogError)
    return error_response(error)


async def _fail(_request: Request, _error: Exception) -> Response:
    return error_response(InternalError("an internal error; the broker's log has the details"))


async def _refuse_text(_request: Request, _error: Exception) -> Response:
    """JSON can hold halves of characters, which no message can: nothing was sent."""
    return error_response(InvalidArgument("a text in the request is not valid Unicode"))


async def _refuse_form(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return error_response(InvalidArgument(f"{shown(where, 200)}: {first['msg']}"))


async def _refuse_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    known = {
        404: f"{what}: there is no such resource: see {OPEN_PATH}",
        405: f"{what}: the resource has no such method: see {OPEN_PATH}",
    }
    response = error_response(InvalidArgument(known.get(error.status_code, str(error.detail))), error.status_code)
    response.headers.update(error.headers or {})
    return response
