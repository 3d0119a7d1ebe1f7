"""How the page asks the cluster: as an ordinary client, over the API that everybody uses, and as pdctl shows it.

What holds: each question has a time limit; answers are shared by all who ask within a moment; the page has no way into the
placement driver that it runs in other than its API, so it shows the same on every member, and what pdctl shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from pdctl.session import Session
from rangelog import Client
from rangelog_core.errors import RangelogError, RequestTimeout
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Port, Principal, Role, check_port
from rangelog_page.shared_answers import SharedAnswers
from rangelog_pd.handlers.service import RULES

TIMEOUT_S = 4.0
"""Of one question to the cluster."""
LONG_TIMEOUT_S = 12.0
"""Of a question that asks many processes."""
TAILS_MAX = 16
"""Live tails that wait at once, of all browsers together."""

Need = str | Port
"""What a section of the page uses: a call, "rangelog.v1.Service/Method", or a port of other processes."""

_T = TypeVar("_T")


class Asking:
    """The page's connections. For one event loop; `close` it."""

    def __init__(self, client: Client, session: Session, own: Principal | None = None) -> None:
        """`session`: with the same rights, for what pdctl asks of each process. `own`: who the page itself is, with TLS."""
        self.own = own
        self.client = client
        self.session = session
        self.shared = SharedAnswers()
        self.tails = asyncio.Semaphore(TAILS_MAX)
        self.load_before: Any = None
        """The sample from which rates are measured: see cluster_views."""

    @property
    def pd(self) -> PdClient:
        """The calls of the placement driver's API."""
        return self.client.metadata.pd

    async def share(self, key: Hashable, age_max_s: float, ask: Callable[[], Awaitable[Any]]) -> Any:
        """See SharedAnswers.get."""
        return await self.shared.get(key, age_max_s, ask)

    async def close(self) -> None:
        """End what runs, and the connections; idempotent."""
        await self.shared.close()
        await self.client.close()


def require(principal: Principal | None, needs: tuple[Need, ...]) -> None:
    """Raise RoleForbids where somebody may not use all that a section needs. None: without TLS principals are unknown."""
    if principal is None:
        return
    for each in needs:
        if isinstance(each, Port):
            check_port(principal, each)
        else:
            RULES.check(principal, f"/{each}")


def may(principal: Principal | None, *needs: Need) -> bool:
    """Whether somebody may use all of it."""
    try:
        require(principal, needs)
    except RangelogError:
        return False
    return True


def is_admin(principal: Principal | None) -> bool:
    """Whether this is an administrator, as everybody is without TLS."""
    return principal is None or principal.role is Role.ADMIN


async def within(seconds: float, work: Awaitable[_T], what: str) -> _T:
    """Return the result of a call that has no limit of its own. Raises RequestTimeout."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise RequestTimeout(f"{what} took longer than {seconds:g} s: look at /health, or try again") from None
