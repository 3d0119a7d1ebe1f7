"""The application: all resources over one client."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

import rangelog
from rangelog_broker.rest.guard import Guard
from rangelog_broker.rest.resources import brokers, groups, shards, streams, tables, topics, transactions
from rangelog_server_common.http_app import json_app
from rangelog_server_common.http_guard import App

_ROUTERS = (streams, topics, shards, groups, transactions, tables, brokers)
_ABOUT = (
    "Administration of a rangelog cluster: any broker serves it, with the same rules and errors as the client. Records are "
    "not sent and read here: use the client. Where the cluster has a token, send it as `Authorization: Bearer TOKEN`."
)


def make_app(client: rangelog.Client, *, token: str | None, **limits: Any) -> App:
    """Return the ASGI application over a client; `limits`: those of `Guard`."""
    app = bare_app()
    app.state.client = client
    return Guard(app, token=token, **limits)


def bare_app() -> FastAPI:
    """Return the application without a client and without its guard."""
    return json_app((each.router for each in _ROUTERS), title="rangelog", about=_ABOUT)
