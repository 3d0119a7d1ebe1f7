"""The application: all resources over one client, with their description at /openapi.json.

What holds: every response is JSON; every operation has a summary, a description, an example and its error responses.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

import rangelog
from rangelog.errors import InternalError, InvalidArgument, RangelogError
from rangelog_broker.rest.errors import error_response, shown
from rangelog_broker.rest.guard import OPEN_PATH, Guard
from rangelog_broker.rest.openapi import description_of
from rangelog_broker.rest.resources import brokers, groups, shards, streams, tables, topics, transactions
from rangelog_server_common.http_guard import App

_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ROUTERS = (streams, topics, shards, groups, transactions, tables, brokers)


def make_app(client: rangelog.Client, *, token: str | None, **limits: Any) -> App:
    """Return the ASGI application over a client; `limits`: those of `Guard`."""
    app = bare_app()
    app.state.client = client
    return Guard(app, token=token, **limits)


def bare_app() -> FastAPI:
    """Return the application without a client and without its guard."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, telemetry=_NO_TELEMETRY)
    for each in _ROUTERS:
        app.include_router(each.router)
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
