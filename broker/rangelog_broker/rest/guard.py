"""The limits of requests to the REST interface."""

from __future__ import annotations

from typing import Any

from rangelog_broker.rest.needs import needs_of_path
from rangelog_core.net.principals import Port
from rangelog_server_common.http_callers import CallerGuard
from rangelog_server_common.http_guard import App, Bodies

BODY_BYTES_MAX = 1024 * 1024
BODY_TIMEOUT_S = 10.0
REQUESTS_MAX = 64
BODIES_MAX = 64
"""Bodies that have not come wholly."""


class Guard(CallerGuard):
    """See CallerGuard."""

    def __init__(
        self,
        app: App,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        body_timeout_s: float = BODY_TIMEOUT_S,
        bodies_max: int = BODIES_MAX,
        requests_max: int = REQUESTS_MAX,
        **checks: Any,
    ) -> None:
        bodies = Bodies(bytes_max=body_bytes_max, timeout_s=body_timeout_s, count_max=bodies_max)
        super().__init__(
            app, name="REST", port=Port.BROKER_REST, bodies=bodies, requests_max=requests_max,
            needs_of_path=needs_of_path, **checks,
        )  # fmt: skip
