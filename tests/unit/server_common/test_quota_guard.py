"""The guard of quotas: what it fetches, whom it holds off, for how long, and how many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog_broker.kinds import BYTE_CALLS
from rangelog_core.errors import Overloaded, Unavailable
from rangelog_core.net.principals import Principal, Role
from rangelog_core.quotas import NAMELESS, Measure
from rangelog_core.rights import KINDS
from rangelog_proto.v1 import quotas_pb2 as pb
from rangelog_proto.v1 import rights_pb2, table_pb2, table_service_pb2
from rangelog_server_common.quotas import guard as module
from rangelog_server_common.quotas.guard import Name, QuotaGuard, QuotaMeter, client_of
from tests.support.waiting import until

STREAM, TOPIC = int(KINDS["stream"]), int(KINDS["topic"])
RATE = 1_000_000
ALICE = Principal(Role.CLIENT, "a")
LISTING = "/rangelog.v1.PlacementDriver/ListStreams"


class Driver:
    """Answers with these quotas and names; raises `error` where that is set."""

    def __init__(self, *quotas: pb.Quota) -> None:
        self.quotas, self.version = list(quotas), 1
        self.names: dict[int, tuple[int, str]] = {}
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        self.asked.append(type(request).__name__)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if isinstance(request, pb.ListQuotasRequest):
            return pb.ListQuotasResponse(quotas=self.quotas, version=self.version)
        grants = []
        for each in request.resources:
            kind, name = self.names.get(each.id, (int(each.kind), f"id {each.id}"))
            grants.append(rights_pb2.AccessGrant(resource=rights_pb2.AccessResource(kind=kind, name=name)))  # type: ignore[arg-type]
        return rights_pb2.CheckRightsResponse(grants=grants)


def make(driver: Driver) -> QuotaGuard:
    guard = QuotaGuard(lambda: 1_000_000)
    guard.pd = driver  # type: ignore[assignment]
    return guard


async def test_quotas_are_fetched_when_the_version_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a version; again after a failure; what is known stays in force meanwhile."""
    monkeypatch.setattr(module, "FETCH_AGAIN_S", 0.001)
    driver = Driver(pb.Quota(principal="*", calls_per_s=5))
    guard = make(driver)
    guard.heard(0)
    assert not driver.asked
    guard.heard(1)
    await until(lambda: guard.book.version == 1)
    guard.heard(1)
    assert driver.asked == ["ListQuotasRequest"] and guard.book.any
    driver.error, driver.version, driver.quotas = Unavailable("away"), 2, []
    guard.heard(2)
    await until(lambda: len(driver.asked) > 3)
    assert guard.book.any
    driver.error = None
    await until(lambda: guard.book.version == 2)
    assert not guard.book.any
    await guard.close()


async def test_a_prefix_counts_once_the_name_is_known() -> None:
    """The stream of a shard is called as its topic, and a nameless append to it is a broker's."""
    driver = Driver()
    driver.names = {1: (STREAM, "orders-1"), 2: (TOPIC, "orders/t"), 3: (STREAM, "_journal-3")}
    guard = make(driver)
    guard.book.load([pb.Quota(prefix="orders", append_bytes_per_s=RATE, read_bytes_per_s=RATE)], 1)
    meter, nameless = QuotaMeter(guard), QuotaMeter(guard)
    meter.admitted(ALICE)
    nameless.admitted(None, "host/1")
    assert meter.buckets(Measure.APPEND, (STREAM, 1)) == ()
    for number in (2, 3):
        meter.buckets(Measure.APPEND, (STREAM, number))
    await until(lambda: guard.name_of((STREAM, 3)))
    assert driver.asked == ["CheckRightsRequest"]
    found = meter.buckets(Measure.APPEND, (STREAM, 1))
    assert len(found) == 1 and meter.buckets(Measure.APPEND, (STREAM, 2)) == found
    assert meter.buckets(Measure.APPEND, (STREAM, 3)) == ()
    assert nameless.buckets(Measure.APPEND, (STREAM, 1)) == found
    assert nameless.buckets(Measure.APPEND, (STREAM, 2)) == ()
    assert len(nameless.buckets(Measure.READ, (STREAM, 2))) == 1
    assert guard.name_of((STREAM, 3)) == Name("_journal-3", internal=True)
    await guard.close()


def test_whom_quotas_are_for() -> None:
    """Clients, and those whom nobody knows unless they greet as servers do: that is believed of nobody else."""
    assert client_of(ALICE) == client_of(ALICE, "broker b") == "client:a"
    assert client_of(None) == client_of(None, "host/1") == NAMELESS
    assert client_of(None, "range-server s1") is client_of(None, "broker b1") is None
    for role in (Role.ADMIN, Role.BROKER, Role.RANGE_SERVER, Role.PD):
        assert client_of(Principal(role, "x")) is None


async def test_a_held_call_keeps_to_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time that its caller waits at most; then it is refused, and not counted: a short deadline lifts no quota."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    guard = make(Driver())
    guard.book.load([pb.Quota(principal="client:a", calls_per_s=1)], 1)
    for remaining_s in (None, None):
        await guard.hold_call(ALICE, LISTING, remaining_s)
    for remaining_s in (0.4, -1.0):
        with pytest.raises(Overloaded, match=r"client:a is over its quota \(calls\) by 1\.5 s") as refused:
            await guard.hold_call(ALICE, LISTING, remaining_s)
        assert refused.value.retriable
    await guard.hold_call(ALICE, LISTING, None)
    assert slept == [0.5, 0.2, 1.5]
    for _ in range(8):
        await guard.hold_call(ALICE, LISTING, None)
    with pytest.raises(Overloaded):
        await guard.hold_call(ALICE, LISTING, None)
    assert slept[-2:] == [9.5, module.CALL_HOLD_S_MAX]
    assert guard.counts.count == {"calls": len(slept)} and guard.calls_held == 0


async def test_the_number_of_held_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one client, so that others are served; the error is one that clients repeat."""
    monkeypatch.setattr(module, "CALLS_OF_PRINCIPAL_HELD_MAX", 2)
    guard = make(Driver())
    guard.book.load([pb.Quota(principal="*", calls_per_s=1)], 1)
    await guard.hold_call(ALICE, LISTING, None)
    held = [asyncio.create_task(guard.hold_call(ALICE, LISTING, None)) for _ in range(2)]
    await asyncio.sleep(0)
    assert guard.calls_held == 2
    with pytest.raises(Overloaded, match="client:a wait for their quota") as refused:
        await guard.hold_call(ALICE, LISTING, None)
    assert refused.value.retriable
    await guard.hold_call(Principal(Role.CLIENT, "b"), LISTING, None)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert guard.calls_held == 0 and not guard._held_of


async def test_the_bytes_of_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is put before it is applied, of what is read when it is answered; by the name of the table as well."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))

    guard = make(Driver())
    guard.byte_calls = BYTE_CALLS
    guard._names[TOPIC, 7] = Name("shop/orders", internal=False)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    guard.book.load([pb.Quota(prefix="shop/", append_bytes_per_s=100_000, read_bytes_per_s=100_000)], 1)
    write = table_pb2.TableWrite(key=b"k", value=bytes(200_000))
    command = table_service_pb2.NumberedTableCommand(command=table_pb2.TableCommand(writes=[write]))
    put = table_service_pb2.ApplyTableRequest(topic_id=7, commands=[command])
    for _ in range(2):
        assert await guard.hold_call(ALICE, "/rangelog.v1.Tables/Apply", None, put) is None
    assert slept == [pytest.approx(1.5, abs=0.01)]
    get = table_service_pb2.GetRowsRequest(topic_id=7)
    for call in ("Get", "Scan"):
        counted = await guard.hold_call(ALICE, f"/rangelog.v1.Tables/{call}", None, get)
        assert counted is not None
        counted(table_service_pb2.GetRowsResponse(rows=[table_pb2.TableRow(value=bytes(200_000))]))
    assert slept[1:] == [pytest.approx(1.5, abs=0.01)]
    other = table_service_pb2.GetRowsRequest(topic_id=8)
    assert await guard.hold_call(ALICE, "/rangelog.v1.Tables/Get", None, other) is None and len(slept) == 2
