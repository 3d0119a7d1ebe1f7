"""The port of metrics as a setting and in a running process. The web server is loaded only where there is such a port."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from rangelog_core.net.tls import TlsConfig
    from rangelog_server_common.metrics.endpoint import Problems
    from rangelog_server_common.metrics.figures import FigureGroup

_log = structlog.get_logger("metrics")


async def serve_metrics(
    stack: AsyncExitStack,
    listen: str,
    role: str,
    name: str,
    parts: Sequence[FigureGroup[Any]],
    problems: Problems,
    tls: TlsConfig | None = None,
) -> str:
    """Serve metrics and probes until `stack` ends, if `listen` is not empty; return the address. Raises Unavailable.

    `role`: pd, range-server or broker. `problems`: returns why the process is not ready, or nothing.
    """
    if not listen:
        return ""
    from rangelog_server_common.metrics.endpoint import MetricsEndpoint

    endpoint = MetricsEndpoint(role, name, parts, problems, tls)
    stack.push_async_callback(endpoint.close)
    address = await endpoint.start(listen)
    _log.info("serving metrics", metrics=f"{'https' if tls else 'http'}://{address}/metrics")
    return address
