"""Writers of one client that lost the same server: one task dials it, and each of them hears how that went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rangelog._append import shared_dials
from rangelog._append.shared_dials import SharedDials
from rangelog_core.errors import RangelogError, RequestTimeout, Unavailable
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections
from rangelog_proto.v1 import common_pb2
from tests.support.waiting import until

RS1, RS2 = (ReplicaId(name, Incarnation(7)) for name in ("rs1", "rs2"))


class FakeConnection:
    """Open until it is said to be closed."""

    closed: RangelogError | None = None


class FakeConnections(DataConnections):
    """Dials as told; notes the addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.dials: list[tuple[str, str]] = []
        self.failures: list[Exception] = []

    async def get(self, replica: ReplicaId, address: str = "") -> DataConnection:
        self.dials.append((replica.server, self.addresses.get(replica, address)))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        return cast(DataConnection, FakeConnection())


class FakeCalls:
    """The placement driver's list of servers."""

    def __init__(self) -> None:
        self.listed: dict[ReplicaId, str] = {}
        self.asked = 0

    async def addresses(self) -> dict[ReplicaId, str]:
        self.asked += 1
        await asyncio.sleep(0)
        return self.listed


class Waiter:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.connections: list[Any] = []
        self.errors: list[RangelogError] = []

    def dialed(self, replica: ReplicaId, connection: Any) -> None:
        self.connections.append(connection)

    def not_dialed(self, replica: ReplicaId, error: RangelogError) -> None:
        self.errors.append(error)


class Setup:
    """The dials of a client, and what they stand on."""

    def __init__(self) -> None:
        self.connections, self.calls = FakeConnections(), FakeCalls()
        self.dials = SharedDials(self.connections, cast(Any, self.calls))


@pytest.fixture
async def setup(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    """With pauses of a millisecond."""
    monkeypatch.setattr(shared_dials, "backoff_s", lambda attempt: 0.001)
    monkeypatch.setattr(shared_dials, "PAUSE_S_MIN", 0.001)
    made = Setup()
    yield made
    made.dials.close()


async def connected(waiters: list[Waiter]) -> None:
    """Return once each has a connection."""
    await until(lambda: all(each.connections for each in waiters))


async def test_one_dial_serves_all_who_wait(setup: Setup) -> None:
    """A thousand ranges on a server that is away cost as many dials as one, and each hears of each failure."""
    waiters = [Waiter() for _ in range(1_000)]
    setup.connections.failures = [Unavailable("refused"), RequestTimeout("silent"), RuntimeError("defect")]
    for each in waiters:
        setup.dials.wait(RS1, each, broke=True)
    await connected(waiters)
    assert len(setup.connections.dials) == 4
    assert all(
        [error.code for error in each.errors] == ["UNAVAILABLE", "REQUEST_TIMEOUT", "INTERNAL"] for each in waiters
    )
    assert len({id(each.connections[0]) for each in waiters}) == 1


async def test_who_gave_up_hears_nothing_and_is_not_dialed_for(setup: Setup) -> None:
    """A range that was left wants no connection; dialing ends with the last that does."""
    waiters = [Waiter(), Waiter()]
    setup.connections.failures = [Unavailable("refused")] * 1_000_000
    for each in waiters:
        setup.dials.wait(RS1, each)
    while not waiters[1].errors:
        await asyncio.sleep(0)
    setup.dials.forget(RS1, waiters[0])
    heard = len(waiters[0].errors)
    await until(lambda: len(waiters[1].errors) >= heard + 3)
    assert len(waiters[0].errors) == heard
    setup.dials.forget(RS1, waiters[1])
    setup.dials.forget(RS2, waiters[1])
    await until(lambda: not setup.dials.dialing, within_s=10)


async def test_a_server_that_moved_is_found(setup: Setup) -> None:
    """After a failure the placement driver is asked for addresses, once for all; ranges bring them as well."""
    moved = common_pb2.Range(replicas=[common_pb2.Replica(server="rs1", incarnation=7, data_address="old:1")])
    moved.replicas.add(server="rs2", incarnation=7)  # of an incarnation that is over: no address
    setup.connections.learn(moved)
    setup.calls.listed = {RS1: "new:1", RS2: "two:1"}
    setup.connections.failures = [Unavailable("refused")]
    waiters = [Waiter() for _ in range(10)]
    for each in waiters:
        setup.dials.wait(RS1, each)
    await connected(waiters)
    assert setup.connections.dials == [("rs1", "old:1"), ("rs1", "new:1")]
    assert setup.calls.asked == 1


async def test_addresses_stay_when_the_placement_driver_does_not_answer(setup: Setup) -> None:
    """What is known is tried again."""
    setup.connections.learn(
        common_pb2.Range(replicas=[common_pb2.Replica(server="rs1", incarnation=7, data_address="a:1")])
    )
    setup.connections.failures = [Unavailable("refused"), Unavailable("refused")]
    waiter = Waiter()
    setup.dials.wait(RS1, waiter)
    await connected([waiter])
    assert {address for _, address in setup.connections.dials} == {"a:1"}


async def test_one_who_joins_during_a_pause_does_not_wait_it_out(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be back: a new range finds out soon, however long others have tried."""
    monkeypatch.setattr(shared_dials, "backoff_s", lambda attempt: 60.0)
    setup.connections.failures = [Unavailable("refused")]
    first, second = Waiter(), Waiter()
    setup.dials.wait(RS1, first)
    while not first.errors:
        await asyncio.sleep(0)
    setup.dials.wait(RS1, second)
    await connected([first, second])
    assert not second.errors


async def test_a_connection_that_does_not_last_counts_as_a_failure(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes connections and drops them is dialed more and more rarely; one that lasted, soon."""
    attempts: list[int] = []

    def pause_s(attempt: int) -> float:
        attempts.append(attempt)
        return 0.001

    monkeypatch.setattr(shared_dials, "backoff_s", pause_s)
    for count in range(1, 4):
        waiter = Waiter()
        setup.dials.wait(RS1, waiter, broke=count > 1)
        await connected([waiter])
    monkeypatch.setattr(shared_dials, "STABLE_S", -1.0)
    waiter = Waiter()
    setup.dials.wait(RS1, waiter, broke=True)
    await connected([waiter])
    assert attempts == [0, 1, 2, 0]
