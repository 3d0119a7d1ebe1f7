"""The trust by which a server checks tokens, fetched from the placement driver whenever a heartbeat's answer names another
version.

What holds: fetches are in the background, each within its time, one at a time; until the first one no token counts; what was
fetched stays in force while no placement driver answers.
"""

from __future__ import annotations

import asyncio
import logging

from rangelog_core.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import tokens_pb2 as pb
from rangelog_server_common.tokens.verifier import NO_TRUST, TokenTrust, trust_of

FETCH_TIMEOUT_S = 3.0
FETCH_AGAIN_S = 0.5

_log = logging.getLogger("rangelog.tokens")


class TrustKeeper:
    """The keys and revocations that one process knows. For one event loop; `close` it."""

    def __init__(self) -> None:
        self.pd: PdClient | None = None
        """Whom to ask; set before a version is heard of."""
        self.trust: TokenTrust = NO_TRUST
        self._wanted: int | None = None
        self._task: asyncio.Task[None] | None = None

    def now(self) -> TokenTrust:
        """Return what counts now."""
        return self.trust

    def heard(self, version: int) -> None:
        """Take the version in force, as a heartbeat's answer has it."""
        self._wanted = version
        if self._is_behind and self._task is None and self.pd is not None:
            self._task = asyncio.create_task(self._fetch())

    async def close(self) -> None:
        """Stop fetching; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def _is_behind(self) -> bool:
        return not self.trust.cluster_id or self._wanted != self.trust.version

    async def _fetch(self) -> None:
        assert self.pd is not None
        try:
            while self._is_behind:
                try:
                    answer: pb.GetTokenTrustResponse = await self.pd.call(
                        pb.GetTokenTrustRequest(), pb.GetTokenTrustResponse, timeout_s=FETCH_TIMEOUT_S
                    )
                    self.trust = trust_of(answer)
                    if self._wanted is not None and self.trust.version > self._wanted:
                        return  # the next heartbeat says so as well
                except RangelogError as error:
                    _log.info("the keys of tokens are not known yet: %s", error.message)
                except Exception:
                    _log.exception("fetching the keys of tokens failed")
                    return
                if self._is_behind:
                    await asyncio.sleep(FETCH_AGAIN_S)
        finally:
            self._task = None
