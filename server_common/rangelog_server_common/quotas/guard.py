"""The quotas of one process: fetched when a heartbeat's answer names another version, and what clients have taken of them.

What holds: a call waits until what its client owes is paid off. A call whose deadline leaves no time for that is refused with
Overloaded, which clients repeat, before anything is done or counted. Servers and administrators are not held off. The names of
resources are asked for in the background: until a name is known no prefix counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rangelog_core.errors import Overloaded, RangelogError
from rangelog_core.ids import is_internal_name
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Principal, Role
from rangelog_core.quotas import NAMELESS, Measure, QuotaBook, RateBuckets, charge, owed_us
from rangelog_proto.v1 import quotas_pb2, rights_pb2

FETCH_TIMEOUT_S = 3.0
FETCH_AGAIN_S = 0.5
CALL_HOLD_S_MAX = 10.0
"""A call is held for so long at most, and for half of the time that its caller waits: what would take longer is refused."""
CALLS_HELD_MAX = 1_000
CALLS_OF_PRINCIPAL_HELD_MAX = 100
"""Above these limits further calls are answered with Overloaded, which clients repeat."""
OWED_S_MAX = 1.0
"""A client that appends while it owes more than this has not waited as told."""
NAMES_MAX = 100_000
NAMES_PER_CALL = 1_000
KNOWN_MAX = 10_000
SERVER_NAMES = ("range-server ", "broker ")
"""How servers greet, which is believed only where nobody is known."""
_ASKER = "client:quotas"
_log = logging.getLogger("rangelog.quotas")

Resource = tuple[int, int]
"""Kind and id."""
Counted = Callable[[Any], object]
"""Given a call's response, counts its bytes."""
CountedBytes = Callable[[int], object]


class ByteCall(NamedTuple):
    """A method whose bytes count: for APPEND those of the request, for READ those of the response.

    `resource`: given a request, returns the resource that the call is on.
    """

    measure: Measure
    resource: Callable[[Any], Resource]


class Name(NamedTuple):
    """The name of a resource in quotas. `internal`: brokers append to it, for clients that they have charged."""

    name: str
    internal: bool


@dataclass(slots=True)
class ThrottleCounts:
    """How often clients were held off, and for how long in all, by measure."""

    count: dict[str, int] = field(default_factory=dict)
    held_us: dict[str, int] = field(default_factory=dict)

    def note(self, measure: Measure, held_us: int) -> None:
        """Count one."""
        name = measure.name.lower()
        self.count[name] = self.count.get(name, 0) + 1
        self.held_us[name] = self.held_us.get(name, 0) + held_us


class QuotaGuard:
    """The quotas of one process. For one event loop; `close` it."""

    def __init__(
        self,
        now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        *,
        byte_calls: Mapping[str, ByteCall] | None = None,
    ) -> None:
        """`byte_calls`: the calls whose bytes count, by method: "/package.Service/Method"."""
        self.pd: PdClient | None = None
        """Whom to ask; set before a version is heard of."""
        self.refresh: Callable[[], None] = lambda: None
        """Called before a call is held: a placement driver has the quotas in its state."""
        self.byte_calls = byte_calls or {}
        self.book = QuotaBook()
        self.counts = ThrottleCounts()
        self.now_us = now_us
        self.calls_held = 0
        self._held_of: dict[str, int] = {}
        self._wanted = 0
        self._fetching: asyncio.Task[None] | None = None
        self._names: dict[Resource, Name] = {}
        self._unnamed: dict[Resource, None] = {}
        self._naming: asyncio.Task[None] | None = None

    def heard(self, version: int) -> None:
        """Take the version in force, as a heartbeat's answer has it."""
        self._wanted = version
        if self._wanted != self.book.version and self._fetching is None and self.pd is not None:
            self._fetching = asyncio.create_task(self._fetch(self.pd))

    def name_of(self, resource: Resource) -> Name | None:
        """Return what a resource is called; None: it is asked for now."""
        found = self._names.get(resource)
        if found is None and self.pd is not None and len(self._unnamed) < NAMES_MAX:
            self._unnamed[resource] = None
            if self._naming is None:
                self._naming = asyncio.create_task(self._ask_names(self.pd))
        return found

    async def hold_call(
        self, principal: Principal | None, method: str, remaining_s: float | None, request: Any = None
    ) -> Counted | None:
        """Hold a call until its client may make it. Return a function that counts the response, None: it does not count.

        `method`: "/package.Service/Method". `remaining_s`: of the call's deadline. Raises Overloaded as `hold` does.
        """
        self.refresh()
        who = client_of(principal)
        if not self.book.any or who is None:
            return None
        await self.hold(who, Measure.CALLS, 1, remaining_s)
        counts = self.byte_calls.get(method)
        if counts is None:
            return None
        units = request.ByteSize() if counts.measure is Measure.APPEND else 0
        counted = await self._hold_bytes(who, counts.measure, counts.resource(request), units, remaining_s)
        return (lambda response: counted(response.ByteSize())) if counted is not None else None

    async def hold_read(self, principal: Principal | None, resource: Resource) -> CountedBytes | None:
        """Hold a client that is to get records of a resource until it may. Return what counts their bytes, as `hold_call`."""
        self.refresh()
        who = client_of(principal)
        if not self.book.any or who is None:
            return None
        return await self._hold_bytes(who, Measure.READ, resource, 0, None)

    async def _hold_bytes(
        self, who: str, measure: Measure, resource: Resource, units: int, remaining_s: float | None
    ) -> CountedBytes | None:
        """Return what counts further bytes; None: they do not count."""
        found = self.name_of(resource)
        name = found.name if found is not None else None
        await self.hold(who, measure, units, remaining_s, name)
        buckets = self.book.buckets(who, name, Measure.READ)
        if measure is Measure.APPEND or not buckets:
            return None
        return lambda size_bytes: charge(buckets, self.now_us(), size_bytes)

    async def hold(
        self, who: str, measure: Measure, units: int, remaining_s: float | None, name: str | None = None
    ) -> None:
        """Count `units` and wait until what was owed before is paid off. `name`: of the resource, for quotas of prefixes.

        `remaining_s`: of the call's deadline, None without one. Raises Overloaded, and counts nothing: at once where too many
        calls wait, and after half of `remaining_s` where the wait would take longer than that.
        """
        buckets = self.book.buckets(who, name, measure)
        if not buckets:
            return
        now_us = self.now_us()
        before_us = owed_us(buckets, now_us)
        if before_us and (
            self.calls_held >= CALLS_HELD_MAX or self._held_of.get(who, 0) >= CALLS_OF_PRINCIPAL_HELD_MAX
        ):
            raise Overloaded(
                f"too many calls of {who} wait for their quota: make fewer at once, or ask for a larger quota"
            )
        limit_s = CALL_HOLD_S_MAX if remaining_s is None else min(CALL_HOLD_S_MAX, max(0.0, remaining_s) / 2)
        limit_us = int(limit_s * 1_000_000)
        if before_us <= limit_us:
            charge(buckets, now_us, units)
        if held_us := min(before_us, limit_us):
            await self._wait(who, measure, held_us)
        if before_us > limit_us:
            raise Overloaded(
                f"{who} is over its quota ({measure.name.lower()}) by {before_us / 1e6:.1f} s, and the call cannot wait for "
                "that long: make fewer, give them more time, or ask for a larger quota"
            )

    async def _wait(self, who: str, measure: Measure, held_us: int) -> None:
        self.counts.note(measure, held_us)
        self.calls_held += 1
        self._held_of[who] = self._held_of.get(who, 0) + 1
        try:
            await asyncio.sleep(held_us / 1_000_000)
        finally:
            self.calls_held -= 1
            self._held_of[who] -= 1
            if not self._held_of[who]:
                del self._held_of[who]

    async def close(self) -> None:
        """Stop asking; idempotent."""
        tasks = [each for each in (self._fetching, self._naming) if each is not None]
        self._fetching = self._naming = self.pd = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- inside

    async def _fetch(self, pd: PdClient) -> None:
        try:
            while self._wanted != self.book.version:
                try:
                    answer: quotas_pb2.ListQuotasResponse = await pd.call(
                        quotas_pb2.ListQuotasRequest(), quotas_pb2.ListQuotasResponse, timeout_s=FETCH_TIMEOUT_S
                    )
                    self.book.load(answer.quotas, answer.version)
                    if answer.version > self._wanted:
                        return  # the next heartbeat says so as well
                except RangelogError as error:
                    _log.info("the quotas are not known yet: %s", error.message)
                except Exception:
                    _log.exception("fetching the quotas failed")
                    return
                if self._wanted != self.book.version:
                    await asyncio.sleep(FETCH_AGAIN_S)
        finally:
            self._fetching = None

    async def _ask_names(self, pd: PdClient) -> None:
        try:
            await asyncio.sleep(0)  # what else is asked in this turn of the loop goes along
            while self._unnamed:
                asked = list(self._unnamed)[:NAMES_PER_CALL]
                resources = [rights_pb2.AccessResource(kind=kind, id=number) for kind, number in asked]  # type: ignore[arg-type]
                request = rights_pb2.CheckRightsRequest(principal=_ASKER, resources=resources)
                try:
                    answer: rights_pb2.CheckRightsResponse = await pd.call(
                        request, rights_pb2.CheckRightsResponse, timeout_s=FETCH_TIMEOUT_S
                    )
                except RangelogError as error:
                    _log.info("names are not known yet: %s", error.message)
                    await asyncio.sleep(FETCH_AGAIN_S)
                    self._unnamed.clear()  # who still needs one asks again
                    return
                if len(self._names) + len(asked) > NAMES_MAX:
                    self._names.clear()
                for each, given in zip(asked, answer.grants, strict=True):
                    name, kind = given.resource.name, given.resource.kind
                    self._names[each] = Name(name, kind != each[0] or is_internal_name(name))
                    self._unnamed.pop(each, None)
        except Exception:
            _log.exception("asking for names failed")
        finally:
            self._naming = None


def client_of(principal: Principal | None, said: str = "") -> str | None:
    """Return the client that a caller counts as; None: a server or an administrator. `said`: as it has greeted."""
    if principal is None:
        return None if said.startswith(SERVER_NAMES) else NAMELESS
    return str(principal) if principal.role is Role.CLIENT else None


class QuotaMeter:
    """The usage of one connection's client. Where `book.any` is false, nothing else here is looked at."""

    def __init__(self, guard: QuotaGuard) -> None:
        self._guard = guard
        self._who: str | None = None
        self._known: dict[tuple[Measure, Resource], tuple[int, RateBuckets]] = {}

    def admitted(self, principal: Principal | None, said: str = "") -> None:
        """Note who has connected, and as what it has greeted."""
        self._who = client_of(principal, said)
        self._known.clear()

    def buckets(self, measure: Measure, resource: Resource) -> RateBuckets:
        """Return what counts for a resource, by its kind and id."""
        who, book = self._who, self._guard.book
        if who is None:
            return ()
        key = (measure, resource)
        known = self._known.get(key)
        if known is not None and known[0] == book.version:
            return known[1]
        name = self._guard.name_of(resource)
        if name is None:
            return book.buckets(who, None, measure)
        if measure is Measure.APPEND and name.internal and who == NAMELESS:
            found: RateBuckets = ()
        else:
            found = book.buckets(who, name.name, measure)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = (book.version, found)
        return found

    def take(self, measure: Measure, resource: Resource, units: int) -> tuple[RateBuckets, int]:
        """Count what was taken; return the buckets, and what was owed before, in µs."""
        buckets = self.buckets(measure, resource)
        if not buckets:
            return buckets, 0
        now_us = self._guard.now_us()
        before_us = owed_us(buckets, now_us)
        charge(buckets, now_us, units)
        return buckets, before_us

    def owed_us(self, buckets: RateBuckets) -> int:
        """Return what is owed now."""
        return owed_us(buckets, self._guard.now_us())


class AppendMeter(QuotaMeter):
    """The same, and what the appends that have no answer yet owe. The key of an append: by which its answer is known."""

    def __init__(self, guard: QuotaGuard) -> None:
        super().__init__(guard)
        self.book = guard.book
        self.charged: dict[Hashable, RateBuckets] = {}
        """The appends whose answers are to say for how long to wait."""

    def charge(self, key: Hashable, resource: Resource, size_bytes: int) -> float:
        """Count an append; return by how many seconds its client owes more than if it had waited."""
        buckets, before_us = self.take(Measure.APPEND, resource, size_bytes)
        if not buckets:
            return 0.0
        self.charged[key] = buckets
        return before_us / 1_000_000 - OWED_S_MAX

    def answered_ms(self, key: Hashable) -> int:
        """Return how long its client is to wait from now on, for the answer: the time that the append took is over."""
        buckets = self.charged.pop(key, None)
        owed_us = self.owed_us(buckets) if buckets else 0
        if owed_us:
            self._guard.counts.note(Measure.APPEND, owed_us)
        return -(-owed_us // 1000)
