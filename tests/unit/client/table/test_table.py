"""Rows of a table: reads, conditional changes, families, scans, sessions; over real journals in memory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from rangelog import Table, TableCheck, TableDelete, TablePut, TableRow
from rangelog._table import lookups, numbering
from rangelog._table.tables import Tables
from rangelog.errors import (
    InvalidArgument,
    Overloaded,
    PreconditionFailed,
    RangelogError,
    RequestTimeout,
    SessionExpired,
    StorageFull,
    TopicNotFound,
    Unavailable,
)
from rangelog_broker.journal import sessions
from rangelog_broker.tables import machine
from rangelog_core.limits import TABLE_VALUE_BYTES_MAX
from tests.support.table_cluster import TableCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


async def test_a_row_is_set_read_and_removed(table: Table) -> None:
    """Versions rise; what is not there is None."""
    assert await table.get(b"k") is None
    first = await table.put(b"k", b"1")
    assert await table.get(b"k") == TableRow(b"k", b"1", first)
    second = await table.put(b"k", b"")
    assert second > first
    assert await table.get(b"k", stale=True) == TableRow(b"k", b"", second)
    assert await table.delete(b"k")
    assert not await table.delete(b"k")
    assert await table.get(b"k") is None


async def test_conditions_hold_or_nothing_changes(table: Table) -> None:
    """A conflict is PreconditionFailed, with a known outcome."""
    version = await table.put_if_absent(b"k", b"1")
    for refused in (
        table.put_if_absent(b"k", b"x"),
        table.put_if_version(b"k", b"x", version + 1),
        table.put_if_version(b"other", b"x", version),
        table.delete(b"k", if_version=version + 1),
        table.delete(b"other", if_version=1),
    ):
        with pytest.raises(PreconditionFailed) as caught:
            await refused
        assert not caught.value.outcome_unknown
    assert (await table.get(b"k")) == TableRow(b"k", b"1", version)
    version = await table.put_if_version(b"k", b"2", version)
    assert await table.delete(b"k", if_version=version)
    assert await table.put_if_absent(b"k", b"3") > version


async def test_an_update_changes_all_or_nothing(table: Table) -> None:
    """All keys of one family; all rows that it set have its version."""
    version = await table.update([TablePut(b"a", b"1"), TablePut(b"b", b"2")], family=b"f")
    rows = await table.get_many([b"a", b"b", b"c"], family=b"f")
    assert rows == [TableRow(b"a", b"1", version, b"f"), TableRow(b"b", b"2", version, b"f"), None]
    with pytest.raises(PreconditionFailed, match="write 1"):
        await table.update([TablePut(b"a", b"x"), TableCheck(b"b", if_absent=True)], family=b"f")
    assert await table.get_many([b"a", b"b", b"c"], family=b"f") == rows
    third = await table.update(
        [TableDelete(b"a"), TablePut(b"c", b"3"), TableCheck(b"b", if_version=version)], family=b"f"
    )
    assert await table.get_many([b"a", b"c"], family=b"f") == [None, TableRow(b"c", b"3", third, b"f")]


async def test_a_key_of_a_family_is_another_key(table: Table) -> None:
    """Than the same key alone, and in another family, whatever bytes they have."""
    families = [None, b"f", b"f\x00", b"f\x00\xff", b"\x00", b"\xff"]
    for number, family in enumerate(families):
        await table.put(b"k", b"%d" % number, family=family)
        await table.put(b"\x00k", b"x", family=family)
    for number, family in enumerate(families):
        row = await table.get(b"k", family=family)
        assert row is not None and (row.value, row.family) == (b"%d" % number, family)
        found = [each async for each in table.scan(family=family)]
        assert [each.key for each in found] == [b"\x00k", b"k"]
    everything = [(each.family, each.key) async for each in table.scan_all(limit=4)]
    assert everything[:3] == [(None, b"\x00k"), (None, b"k"), (b"\x00", b"\x00k")]
    assert len([each async for each in table.scan_all()]) == 12


async def test_many_rows_are_read_in_the_order_of_their_keys(table: Table) -> None:
    """From all partitions, also where one response does not hold them all."""
    big = bytes(900_000)
    for number in range(6):
        await table.put(b"%d" % number, big + b"%d" % number, family=b"f")
        await table.put(b"%d" % number, b"%d" % number)
    keys = [b"%d" % number for number in (5, 0, 3, 9, 1, 0)]
    alone = await table.get_many(keys)
    assert [row.value if row else None for row in alone] == [b"5", b"0", b"3", None, b"1", b"0"]
    of_family = await table.get_many(keys, family=b"f", stale=True)
    assert [row.value[-1:] if row else None for row in of_family] == [b"5", b"0", b"3", None, b"1", b"0"]
    assert await table.get_many([]) == []


async def test_a_scan_goes_over_partitions_in_order_of_keys(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a prefix, bounds and a limit, in pages."""
    monkeypatch.setattr("rangelog._table.scan.PAGE_ROWS", 3)
    keys = sorted(b"%03d" % number for number in range(50))
    await asyncio.gather(*(table.put(key, key) for key in random.Random(1).sample(keys, len(keys))))

    async def scanned(**bounds: Any) -> list[bytes]:
        return [row.key async for row in table.scan(**bounds)]

    assert await scanned() == keys
    assert await scanned(stale=True, limit=7) == keys[:7]
    assert await scanned(limit=0) == []
    assert await scanned(prefix=b"01") == keys[10:20]
    assert await scanned(prefix=b"01", start=b"015", end=b"018") == keys[15:18]
    assert await scanned(start=b"04", end=b"0400") == keys[40:41]
    assert await scanned(start=b"049x") == []
    assert await scanned(prefix=b"\xff") == []


async def test_a_scan_over_changes_returns_what_stays_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come, go and change meanwhile do not make it skip or repeat the others."""
    monkeypatch.setattr("rangelog._table.scan.PAGE_ROWS", 2)
    stays = [b"%02d-stays" % number for number in range(20)]
    for key in stays:
        await table.put(key, b"v")
    rng = random.Random(2)
    seen: list[bytes] = []
    async for row in table.scan():
        seen.append(row.key)
        number = rng.randrange(20)
        await table.put(b"%02d-comes" % number, b"v")
        await table.delete(b"%02d-comes" % rng.randrange(20))
        await table.put(rng.choice(stays), b"w")
    assert [key for key in seen if key.endswith(b"stays")] == stays
    assert seen == sorted(set(seen))


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.get(b""),
        lambda table: table.get("k"),
        lambda table: table.get(b"k", family=b""),
        lambda table: table.get(b"k" * 4_096),
        lambda table: table.put(b"k", "v"),
        lambda table: table.put(b"k", bytes(TABLE_VALUE_BYTES_MAX + 1)),
        lambda table: table.put_if_version(b"k", b"v", 0),
        lambda table: table.delete(b"k", if_version=True),
        lambda table: table.update([]),
        lambda table: table.update([TablePut(b"a", b"1"), TablePut(b"b", b"1")]),
        lambda table: table.update([TablePut(b"a", b"1"), TableDelete(b"a")], family=b"f"),
        lambda table: table.update([TablePut(b"%d" % n, b"") for n in range(1_001)], family=b"f"),
        lambda table: table.update([TablePut(b"%d" % n, bytes(600_000)) for n in range(2)], family=b"f"),
        lambda table: table.update([b"a"]),
        lambda table: anext(table.scan(limit=-1)),
        lambda table: anext(table.scan(prefix="a")),
        lambda table: table.watch(all_families=True, prefix=b"a"),
        lambda table: table.watch(since={0: 1}),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_sent(
    cluster: TableCluster, table: Table, call: Any
) -> None:
    """Each as InvalidArgument."""
    with pytest.raises(InvalidArgument):
        await call(table)
    assert cluster.owners.calls == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: TablePut(b"k", b"v", if_version=1, if_absent=True),
        lambda: TablePut(b"k", b"v", if_absent=1),  # type: ignore[arg-type]
        lambda: TableCheck(b"k"),
        lambda: TableDelete(b"", if_version=1),
    ],
)
def test_parts_of_an_update_check_themselves(make: Any) -> None:
    """When they are made."""
    with pytest.raises(InvalidArgument):
        make()


async def test_a_full_partition_refuses(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """As StorageFull, with a known outcome; reads and removals go on."""
    monkeypatch.setattr(machine, "BYTES_MAX", 1_000)
    monkeypatch.setattr(machine.TablePartition.__init__, "__kwdefaults__", {"bytes_max": 1_000})
    await tables.create("t", partitions=1)
    table = tables.table("t")
    await table.put(b"a", bytes(800))
    with pytest.raises(StorageFull) as caught:
        await table.put(b"b", bytes(200))
    assert not caught.value.outcome_unknown
    assert await table.delete(b"a")
    await table.put(b"b", bytes(200))


async def test_many_changes_share_calls(cluster: TableCluster, tables: Tables) -> None:
    """What is asked for in one turn goes in a few calls; so do reads."""
    await tables.create("t", partitions=1)
    table = tables.table("t")
    await table.put(b"k", b"v")
    before = cluster.owners.calls
    await asyncio.gather(*(table.put(b"%d" % number, b"v") for number in range(500)))
    assert cluster.owners.calls - before <= 8
    before = cluster.owners.calls
    assert all(await asyncio.gather(*(table.get(b"%d" % number) for number in range(500))))
    assert cluster.owners.calls - before <= 8


async def test_two_objects_of_a_client_share_the_session(cluster: TableCluster, tables: Tables, table: Table) -> None:
    """And another client has its own."""
    await table.put(b"k", b"1")
    await tables.table("t").put(b"k", b"2")
    await cluster.tables().table("t").put(b"k", b"3")
    (journal,) = (each for each in cluster.brokers[0].journals.values() if each.machine.version)
    assert len(journal._owner.fold.sessions) == 2


async def test_nobody_answers(cluster: TableCluster, tables: Tables, table: Table) -> None:
    """A call ends by its time; whether a change was made is stated as it is."""
    await table.put(b"k", b"v")
    cluster.owners.silent = True
    with pytest.raises(RequestTimeout) as read:
        await table.get(b"k", timeout_s=0.05)
    assert not read.value.outcome_unknown
    with pytest.raises(RequestTimeout) as changed:
        await table.put(b"k", b"w", timeout_s=0.05)
    assert changed.value.outcome_unknown, "the call is under way, and may arrive yet"
    waiting = [asyncio.create_task(each) for each in (table.put(b"k", b"x"), table.get(b"k"))]
    await asyncio.sleep(0)
    await tables.close()
    for task in waiting:
        with pytest.raises(Unavailable, match="closed"):
            await task
    for late in (table.put(b"k", b"y"), table.get(b"k")):
        with pytest.raises(Unavailable, match="closed"):
            await late


async def test_what_waits_is_bounded(cluster: TableCluster, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a call is refused, with a known outcome, and the others go on."""
    monkeypatch.setattr(numbering, "QUEUE_COMMANDS_MAX", 5)
    monkeypatch.setattr(lookups, "WAITING_MAX", 5)
    results: list[Any] = []
    for make in (lambda: table.put(b"k", b"v"), lambda: table.get(b"k")):
        results += await asyncio.gather(*(make() for _ in range(8)), return_exceptions=True)
    refused = [each for each in results if isinstance(each, RangelogError)]
    assert len(refused) == 6
    assert all(isinstance(each, Overloaded) and not each.outcome_unknown for each in refused)


async def test_an_expired_session_is_replaced(cluster: TableCluster, tables: Tables, tmp_path: Path) -> None:
    """Without a trace, where the command has arrived once and was refused; the caller sees nothing of it."""
    await tables.create("t", partitions=1)
    table = tables.table("t")
    await table.put(b"k", b"1")
    journal = next(iter(cluster.brokers[0].journals.values()))
    now_ms = journal._clock_ms()
    journal._clock_ms = lambda: now_ms + sessions.SESSION_MS + 1
    results = await asyncio.gather(*(table.put(b"%d" % number, b"2") for number in range(600)))
    assert sorted(results) == list(range(2, 602))


async def test_a_doubt_that_outlives_its_session_is_stated(cluster: TableCluster, tables: Tables) -> None:
    """The first answer was lost and the session expired before the next try: nobody knows the outcome any more."""
    await tables.create("t", partitions=1)
    table = tables.table("t")
    await table.put(b"k", b"1")
    journal = next(iter(cluster.brokers[0].journals.values()))
    now_ms = journal._clock_ms()

    async def expire() -> None:
        journal._clock_ms = lambda: now_ms + sessions.SESSION_MS + 1
        await journal.open_session()

    cluster.owners.lose_next("lost response")
    cluster.owners.on_lost = expire
    with pytest.raises(SessionExpired) as caught:
        await table.put_if_version(b"k", b"2", 1)
    assert caught.value.outcome_unknown
    row = await table.get(b"k")
    assert row is not None and row.value == b"2"
    assert await table.put_if_version(b"k", b"3", row.version) == 3


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(cluster: TableCluster, table: Table) -> None:
    """Its command goes on, may take effect beside a later one, and is resolved; what comes after that is last."""
    await table.put(b"k", b"1")
    cluster.owners.silent = True
    waiting = asyncio.create_task(table.put(b"k", b"2"))
    for _ in range(5):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    cluster.owners.silent = False
    assert await table.put(b"k", b"3") in (2, 3)
    assert table._found is not None
    sender = table._found.of(b"k", None).sender
    await until(lambda: not sender._sending)
    assert not sender._numbering._unresolved and not sender._numbering.has_work
    await table.put(b"k", b"4")
    row = await table.get(b"k")
    assert row is not None and row.value == b"4"


async def test_a_table_that_is_deleted_under_its_users(cluster: TableCluster, tables: Tables) -> None:
    """Reads, changes and watches end with TopicNotFound, not with a time-out that could be repeated."""
    await tables.create("t", partitions=1)
    table = tables.table("t")
    await table.put(b"k", b"v")
    watch = await table.watch(timeout_s=0.1)
    await tables.delete("t")
    cluster.owners.silent = True
    uses = (anext(watch.changes()), table.get(b"k", timeout_s=0.1), table.put(b"k", b"w", timeout_s=0.1))
    for found in await asyncio.gather(*uses, return_exceptions=True):
        assert isinstance(found, TopicNotFound), repr(found)
