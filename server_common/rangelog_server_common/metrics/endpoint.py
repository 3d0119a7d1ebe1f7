"""The HTTP port of a process for those who watch it: `/metrics`, and the probes `/livez` and `/readyz`.

What holds: `/livez` answers 200 whenever the event loop turns, and asks nothing else, so that a fault elsewhere restarts no
process. `/readyz` answers 503 with a reason in each line while the process cannot do its work. No answer names a stream, a
record or a secret.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, make_asgi_app

from rangelog_core.errors import Unavailable
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import Port
from rangelog_core.net.tls import TlsConfig
from rangelog_server_common.http_server import REFUSAL, HttpServer
from rangelog_server_common.metrics.exposition import make_registry
from rangelog_server_common.metrics.figures import Figure, FigureGroup, gauge, histogram
from rangelog_server_common.metrics.loop_holds import HOLDS
from rangelog_server_common.metrics.loop_lag import measure_lag
from rangelog_server_common.metrics.tally import DurationTally

CONNECTIONS_MAX = 32
_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]

Problems = Callable[[], Sequence[str]]
"""Returns why a process is not ready; nothing: it is."""

LOOP_FIGURES: Sequence[Figure[DurationTally]] = (
    histogram("rangelog_event_loop_lag_seconds", "By how much the event loop is late, looked at twice a second.",
              lambda lag: lag),
    gauge("rangelog_event_loop_longest_hold_seconds",
          "The longest piece of work of the event loop since the last scrape, in processor time.",
          lambda lag: HOLDS.take_longest_s()),
)  # fmt: skip


class MetricsEndpoint:
    """The port of one process. For one event loop; `close` it, also if `start` failed."""

    def __init__(
        self,
        role: str,
        name: str,
        parts: Sequence[FigureGroup[Any]],
        problems: Problems,
        tls: TlsConfig | None = None,
    ) -> None:
        """`role`, `name`: see make_registry. `problems`: called for each question whether the process is ready."""
        lag = DurationTally()
        self._lag = lag
        self._registry = make_registry(role, name, [*parts, FigureGroup(lambda: lag, LOOP_FIGURES)])
        self._server = HttpServer(
            make_app(self._registry, problems), port=Port.METRICS, tls=tls, connections_max=CONNECTIONS_MAX
        )
        self._measuring: asyncio.Task[None] | None = None

    async def start(self, listen: str) -> str:
        """Listen on "host:port" (port 0: any free one); return the address. Raises Unavailable."""
        host, port = split_address(listen, port_min=0)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            bound = socket.socket(family, kind, protocol)
        except OSError as error:
            raise Unavailable(f"cannot serve metrics on {listen}: {error.strerror or error}") from error
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            await self._server.start(bound)
        except OSError as error:
            bound.close()
            raise Unavailable(
                f"cannot serve metrics on {listen}: {error.strerror or error}: choose another metrics_listen"
            ) from error
        self._measuring = asyncio.create_task(measure_lag(self._lag))
        name = bound.getsockname()
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._measuring is not None:
            self._measuring.cancel()
        await self._server.close()


def make_app(registry: CollectorRegistry, problems: Problems) -> Any:
    """Return the ASGI application of the three paths."""
    metrics = make_asgi_app(registry)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        refused = scope.get("state", {}).get(REFUSAL)
        if refused is not None:
            await _answer(send, 403, f"{refused.message}\n")
        elif path not in ("/metrics", "/livez", "/readyz"):
            await _answer(send, 404, "there are /metrics, /livez and /readyz\n")
        elif method not in ("GET", "HEAD"):
            await _answer(send, 405, "ask with GET\n", [(b"allow", b"GET, HEAD")])
        elif path == "/metrics":
            await metrics(scope, receive, send)
        elif path == "/livez":
            await _answer(send, 200, "ok\n")
        else:
            found = problems()
            await _answer(send, 503 if found else 200, "".join(f"{each}\n" for each in found) or "ok\n")

    return app


async def _answer(send: Any, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = text.encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*_TEXT, length, *headers]})
    await send({"type": "http.response.body", "body": body})
