"""The application: each address of the page, each section by itself, and the static files.

What holds: a section that fails is shown as an error with what to do, beside the others; a section that has not changed since a
browser saw it is not sent again (ETag); nothing is looked at that no browser shows.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from rangelog_core.errors import InternalError, InvalidArgument, RangelogError
from rangelog_core.net.principals import Principal
from rangelog_page.asking import Asking, require
from rangelog_page.failures import Failure, failure_of
from rangelog_page.guard import PageGuard
from rangelog_page.page_query import PageQuery
from rangelog_page.rendering import Rendering, with_query
from rangelog_page.sections import SECTIONS, VIEWS, Section
from rangelog_page.texts import shown
from rangelog_page.viewer_rights import require_read
from rangelog_server_common.http_guard import App
from rangelog_server_common.http_server import PRINCIPAL

NEXT_OFFSET = "next-offset"
"""The header of a live tail: where the next answer is to go on."""
_STATIC_CACHE = "public, max-age=31536000, immutable"
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


def _caller(request: Request) -> Principal | None:
    found: Principal | None = request.scope.get("state", {}).get(PRINCIPAL)
    return found


Caller = Annotated[Principal | None, Depends(_caller)]
Parameters = Annotated[PageQuery, Query()]


class PageApp:
    """The addresses over one connection to the cluster."""

    def __init__(self, asking: Asking, rendering: Rendering) -> None:
        self._asking = asking
        self._rendering = rendering
        self._one_at_a_time = asyncio.Lock()
        """Templates are rendered off the loop, which has elections to hold, and one after the other."""

    async def view(self, request: Request, name: str, caller: Principal | None, query: PageQuery) -> Response:
        """Return one address with all its sections, which are looked at side by side."""
        sections = [SECTIONS[each] for each in VIEWS[name].sections]
        looked = await asyncio.gather(*(self._inside(each, caller, query) for each in sections))
        parts = [(each, _address(each, query), inside) for each, (inside, _, _) in zip(sections, looked, strict=True)]
        title = f"{VIEWS[name].title} {query.name}" if query.name else VIEWS[name].title
        status = looked[0][1].status if looked[0][1] is not None else 200
        return _html(request, self._rendering.whole(name, title, parts), status)

    async def part(self, request: Request, name: str, caller: Principal | None, query: PageQuery) -> Response:
        """Return one section by itself. Raises HTTPException for one that there is not."""
        section = SECTIONS.get(name)
        if section is None:
            raise HTTPException(404)
        inside, failure, found = await self._inside(section, caller, query)
        response = _html(request, inside, failure.status if failure is not None else 200)
        if "next_offset" in found:
            response.headers[NEXT_OFFSET] = str(found["next_offset"])
        return response

    def static(self, name: str, version: str) -> Response:
        """Return a static file. Raises HTTPException for one that there is not."""
        found = self._rendering.files.get(name)
        if found is None:
            raise HTTPException(404)
        caching = _STATIC_CACHE if version == found.version else "no-cache"
        return Response(found.body, media_type=found.content_type, headers={"cache-control": caching})

    async def _inside(
        self, section: Section, caller: Principal | None, query: PageQuery
    ) -> tuple[str, Failure | None, dict[str, Any]]:
        try:
            require(caller, section.needs)
            require(self._asking.own, section.needs)
            await require_read(self._asking, caller, section.reads, query)
            found = await section.look(self._asking, caller, query)
            async with self._one_at_a_time:
                inside = await asyncio.to_thread(self._rendering.section, section, found)
            return inside, None, found
        except RangelogError as error:
            failure = failure_of(error)
            return self._rendering.failure(failure), failure, {}


def make_page_app(
    asking: Asking, rendering: Rendering, *, token: str | None, hosts: Collection[str] | None, **limits: Any
) -> App:
    """Return the ASGI application; `token`, `hosts` and `limits`: those of PageGuard."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, telemetry=_NO_TELEMETRY)
    page = PageApp(asking, rendering)
    for path, name in (("/", "cluster"), ("/streams", "streams"), ("/topics", "topics"), ("/groups", "groups"),
                       ("/tasks", "tasks"), ("/health", "health")):  # fmt: skip
        _add_view(app, page, path, name)
    _add_named(app, page)

    async def refuse(_request: Request, error: Exception) -> Response:
        failure = _failure(error)
        return Response(rendering.refusal(failure), failure.status, media_type="text/html; charset=utf-8")

    app.add_exception_handler(HTTPException, refuse)
    app.add_exception_handler(RequestValidationError, refuse)
    app.add_exception_handler(Exception, refuse)  # raised on after the answer: the guard logs it
    return PageGuard(app, refuse=rendering.refusal, token=token, hosts=hosts, **limits)


def _add_view(app: FastAPI, page: PageApp, path: str, name: str) -> None:
    @app.get(path)
    async def view(request: Request, caller: Caller, query: Parameters) -> Response:
        return await page.view(request, name, caller, query)


def _add_named(app: FastAPI, page: PageApp) -> None:
    @app.get("/streams/{name}")
    async def stream(request: Request, name: str, caller: Caller, query: Parameters) -> Response:
        return await page.view(request, "stream", caller, _named(query, name))

    @app.get("/topics/{namespace}/{name}")
    async def topic(request: Request, namespace: str, name: str, caller: Caller, query: Parameters) -> Response:
        return await page.view(request, "topic", caller, _named(query, f"{namespace}/{name}"))

    @app.get("/groups/{name}")
    async def group(request: Request, name: str, caller: Caller, query: Parameters) -> Response:
        return await page.view(request, "group", caller, _named(query, name))

    @app.get("/parts/{section}")
    async def part(request: Request, section: str, caller: Caller, query: Parameters) -> Response:
        return await page.part(request, section, caller, query)

    @app.get("/static/{name}")
    async def static(name: str, v: str = "") -> Response:
        return page.static(name, v)


def _named(query: PageQuery, name: str) -> PageQuery:
    """Return the query with the name of the path: that of the parameters does not count."""
    return query.model_copy(update={"name": name[:300]})


def _address(section: Section, query: PageQuery) -> str:
    given = query.model_dump(include=set(section.parameters), exclude_defaults=True)
    return with_query(f"/parts/{section.name}", PageQuery(**given))


def _html(request: Request, text: str, status: int) -> Response:
    body = text.encode()
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, status, {"etag": tag}, media_type="text/html; charset=utf-8")


def _failure(error: Exception) -> Failure:
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return failure_of(InvalidArgument(f"{shown(where, 100)}: {first['msg']}"))
    if isinstance(error, HTTPException) and error.status_code == 404:
        return Failure(404, "NOT_FOUND", "There is nothing at this address.", "Begin at the cluster.")
    return failure_of(InternalError("an internal error of the page"))
