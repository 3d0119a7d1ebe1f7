"""The guard of a process: grants, and the calls on the placement driver that bring them.

What holds: a question has one call in flight at most, questions of one client share calls, and each ends within its time limit;
while the placement driver cannot be asked, what needs a new grant is refused as unavailable, and nothing is let through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from rangelog_core.errors import RangelogError, Unavailable
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import Verb, right_missing, verbs_of
from rangelog_core.tokens import Bounds
from rangelog_proto.v1 import rights_pb2 as pb
from rangelog_server_common.rights.grants import UNKNOWN, Grant, Grants, Key
from rangelog_server_common.tokens.bounds import bounds_of, check_unbound, token_bound

ASK_TIMEOUT_S = 3.0
ASK_AGAIN_S = 0.05
FAILED_S = 0.5
"""After a call without an answer its questions are not asked again for so long."""
KEYS_PER_CALL = 1_000
WAITING_MAX = 100_000
"""Questions without an answer; above it further ones are refused."""

_log = logging.getLogger("rangelog.rights")


class RightsGuard:
    """The guard of one process. For one event loop; `close` it."""

    def __init__(self) -> None:
        self.pd: PdClient | None = None
        """Whom to ask; set before rights are heard of."""
        self.grants = Grants()
        self.refused_count = 0
        self._waiting: dict[Key, list[Callable[[], None]]] = {}
        self._queues: dict[str, dict[Key, None]] = {}
        self._failed: dict[Key, tuple[float, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def heard(self, version: int) -> None:
        """Take the version in force from the placement driver; 0: rights are not enforced."""
        self.grants.heard(version)

    def begin_unknown(self) -> None:
        """Ask before any client passes, until the version in force is heard: ports are open before that."""
        self.grants.heard(UNKNOWN)

    def limits(self, principal: Principal | None) -> bool:
        """Whether somebody is a client, for whom rights count. Without TLS principals are unknown, and no rights are
        enforced."""
        return principal is not None and principal.role is Role.CLIENT

    def find(self, key: Key) -> Grant | None:
        """Return a grant; None: ask for it. Raises Unavailable where it could not be had just now."""
        now_s = asyncio.get_running_loop().time()
        grant = self.grants.find(key, now_s)
        if grant is not None:
            if self.grants.is_old(key, now_s) and key not in self._waiting and key not in self._failed:
                self.ask(key, lambda: None)
            return grant
        failed = self._failed.get(key)
        if failed is not None:
            if now_s < failed[0]:
                raise Unavailable(f"it is not known now what {key[0]} may do: {failed[1]}")
            del self._failed[key]
        return None

    def check(self, key: Key, grant: Grant, verbs: Verb, bounds: Bounds | None = None) -> Verb:
        """Return what a grant gives within the bounds of a token. Raises RightMissing unless it is one of the verbs."""
        if not grant.verbs & verbs:
            self.refused_count += 1
            raise right_missing(key[0], verbs, grant.kind, grant.name)
        given = grant.verbs if bounds is None else grant.verbs & bounds.left(grant.kind, grant.name)
        if not given & verbs:
            self.refused_count += 1
            raise token_bound(key[0], verbs, grant.kind, grant.name)
        return given

    def ask(self, key: Key, done: Callable[[], None]) -> None:
        """Call `done` when the request succeeds or fails. Raises Unavailable where too many wait."""
        if key in self._waiting:
            self._waiting[key].append(done)
            return
        if len(self._waiting) >= WAITING_MAX:
            raise Unavailable("too many questions about rights wait for the placement driver")
        self._waiting[key] = [done]
        queue = self._queues.get(key[0])
        if queue is not None:
            queue[key] = None
            return
        self._queues[key[0]] = {key: None}
        task = asyncio.create_task(self._ask_all(key[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def require(self, principal: Principal | None, needs: Iterable[tuple[Verb, int, str, int]]) -> None:
        """Check that a client may do all of this: verbs, kind, and name or id. Raises RightMissing, Unavailable."""
        bounds = bounds_of(principal)
        for verbs, kind, name, number in needs:
            if not self.grants.version:
                check_unbound(principal)
            while self.grants.version and self.limits(principal):
                key = (str(principal), kind, name, number)
                grant = self.find(key)
                if grant is not None:
                    self.check(key, grant, verbs, bounds)
                    break
                answered = asyncio.Event()
                self.ask(key, answered.set)
                await answered.wait()
                if not self.grants.version:
                    check_unbound(principal)

    async def close(self) -> None:
        """Stop asking; idempotent."""
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # ---- inside

    async def _ask_all(self, principal: str) -> None:
        """Ask until no question of a client is left."""
        try:
            await asyncio.sleep(0)  # what else is asked in this turn of the loop goes along
            while queue := self._queues[principal]:
                keys = list(queue)[:KEYS_PER_CALL]
                for key in keys:
                    del queue[key]
                try:
                    again = await self._ask(principal, keys)
                except Exception as error:
                    if not isinstance(error, RangelogError):
                        _log.exception("asking for rights failed")
                    told = error.message if isinstance(error, RangelogError) else "an internal error"
                    self._fail(keys, told)
                    continue
                if again:
                    await asyncio.sleep(ASK_AGAIN_S)
                    queue |= again
        finally:
            self._queues.pop(principal, None)

    async def _ask(self, principal: str, keys: list[Key]) -> dict[Key, None]:
        """Ask once; return what is to be asked again. Raises the error of the call."""
        if self.pd is None:
            raise Unavailable("this process has no placement driver")
        if not self.grants.version:  # rights are not enforced any more
            self._answered(keys)
            return {}
        asked_s = asyncio.get_running_loop().time()
        resources = [pb.AccessResource(kind=key[1], name=key[2], id=key[3]) for key in keys]  # type: ignore[arg-type]
        request = pb.CheckRightsRequest(principal=principal, resources=resources)
        response: pb.CheckRightsResponse = await self.pd.call(request, pb.CheckRightsResponse, timeout_s=ASK_TIMEOUT_S)
        if len(response.grants) != len(keys):
            raise Unavailable("the placement driver answered about other resources")
        again: dict[Key, None] = {}
        for key, given in zip(keys, response.grants, strict=True):
            grant = Grant(verbs_of(given.verbs), given.resource.kind, given.resource.name)
            if not self.grants.keep(key, grant, response.version, asked_s):
                again[key] = None
        self._answered([key for key in keys if key not in again])
        return again

    def _fail(self, keys: list[Key], why: str) -> None:
        until_s = asyncio.get_running_loop().time() + FAILED_S
        if len(self._failed) > WAITING_MAX:
            self._failed.clear()
        for key in keys:
            self._failed[key] = (until_s, why)
        self._answered(keys)

    def _answered(self, keys: list[Key]) -> None:
        for key in keys:
            for done in self._waiting.pop(key, ()):
                done()
