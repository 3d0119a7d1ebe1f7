"""Walks of concurrent clients over a table whose owners change and whose calls get lost and repeated (T7).

Each seed is another walk. What the clients saw is checked for linearizability per key; updates of several keys are seen wholly
or not at all; what a scan and a watch from its position give is the table.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rangelog import Table, TablePut
from rangelog._table import numbering
from rangelog.errors import OffsetTrimmed, PreconditionFailed, RangelogError
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owner import OwnerLimits
from rangelog_broker.journal.sessions import Sessions
from rangelog_broker.tables import machine
from tests.support.table_cluster import TableCluster
from tests.support.table_history import CONFLICT, UNKNOWN, Operation, check_table

pytestmark = pytest.mark.virtual

KEYS = [b"a", b"b"]
CHANGES = ["get", "put", "put", "absent", "version", "delete", "remove"]
LIMITS = OwnerLimits(snapshot_entries=40)
TASKS, STEPS = 2, 40


class Walker:
    """One task of one client, and what it saw. `clock` counts for all of them."""

    def __init__(
        self, table: Table, kinds: list[str], rng: random.Random, clock: itertools.count, history: list[Operation]
    ) -> None:
        self._table = table
        self._kinds = kinds
        self._rng = rng
        self._clock = clock
        self._history = history
        self._seen: dict[bytes, int] = {}

    async def step(self) -> None:
        """One operation on one key."""
        key, kind = self._rng.choice(KEYS), self._rng.choice(self._kinds)
        start = next(self._clock)
        value = b"%d" % start
        condition: dict[str, Any] = {}
        if kind == "get":
            work: Awaitable[Any] = self._table.get(key)
        elif kind == "put":
            work = self._table.put(key, value)
        elif kind == "absent":
            condition = {"if_absent": True}
            work = self._table.put_if_absent(key, value)
        elif kind == "version" and key in self._seen:
            condition = {"if_version": self._seen[key]}
            work = self._table.put_if_version(key, value, self._seen[key])
        elif kind == "remove" and key in self._seen:
            condition = {"if_version": self._seen[key]}
            work = self._table.delete(key, if_version=self._seen[key])
        else:
            kind = "delete"
            work = self._table.delete(key)
        name = "get" if kind == "get" else "delete" if kind in ("delete", "remove") else "put"
        result = await self._outcome(work)
        if result is None and name != "get":
            return  # refused for certain
        if name == "get" and result is not None and result != UNKNOWN:
            result = result.value, result.version
        version = result[1] if isinstance(result, tuple) else result if name == "put" else None
        if isinstance(version, int):
            self._seen[key] = version
        if name != "get" or result != UNKNOWN:
            self._history.append(Operation(start, next(self._clock), name, key, result, value, **condition))

    async def _outcome(self, work: Awaitable[Any]) -> Any:
        """The result; CONFLICT; UNKNOWN; None: it was not carried out."""
        try:
            return await work
        except PreconditionFailed:
            return CONFLICT
        except RangelogError as error:
            assert error.retriable, error
            return UNKNOWN if error.outcome_unknown else None


async def walk(cluster: TableCluster, rng: random.Random, moves: int) -> list[Operation]:
    """Two clients change one partition and a third reads it while its owner changes."""
    tables = cluster.tables()
    await tables.create("t", partitions=1)
    clock, history, pauses = itertools.count(), list[Operation](), random.Random(rng.random())

    def walkers(kinds: list[str], clients: int) -> list[Walker]:
        made = [cluster.tables() for _ in range(clients)]
        return [
            Walker(client.table("t"), kinds, random.Random(rng.random()), clock, history)
            for client in made
            for _ in range(TASKS)
        ]

    async def change(walker: Walker) -> None:
        for _ in range(STEPS):
            await walker.step()
            if pauses.random() < 0.2:  # so that a former owner is not always found out by the next change
                await turns(200)

    async def read(walker: Walker) -> None:
        while not changed.done():
            await walker.step()
            await turns(rng.randint(0, 20))

    async def move() -> None:
        for _ in range(moves):
            await turns(rng.randint(1, 200))
            if cluster.owned_by:
                await cluster.move(next(iter(cluster.owned_by)))

    changed = asyncio.gather(move(), *(change(each) for each in walkers(CHANGES, 2)))
    await asyncio.gather(changed, *(read(each) for each in walkers(["get"], 1)))
    return history


async def turns(count: int) -> None:
    """Let everybody else go on."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_histories_are_linearizable_per_key(seed: int, tmp_path: Path) -> None:
    """Through changes of the owner, snapshots, losses before and after a call is carried out, and calls that arrive again."""
    rng = random.Random(seed)
    async with TableCluster(tmp_path, seed=seed, trouble=0.3, limits=LIMITS) as cluster:
        history = await walk(cluster, rng, moves=12)
        assert len(history) > 40
        check_table(history)


@pytest.mark.parametrize("spoiled", ["read without a proof", "results are forgotten"])
async def test_the_walks_find_what_is_wrong(spoiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the walks are for shows in some of them."""
    if spoiled == "read without a proof":
        monkeypatch.setattr(Journal, "read", read_without_proof)
    else:
        monkeypatch.setattr(Sessions, "keep", lambda sessions, command, result: None)
    found = 0
    for seed in range(30):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with TableCluster(folder, seed=seed, trouble=0.3, limits=LIMITS) as cluster:
            history = await walk(cluster, random.Random(seed), moves=12)
            try:
                check_table(history)
            except AssertionError:
                found += 1
                break
    assert found


async def read_without_proof(journal: Journal[Any], look: Callable[[Any], Any], *, timeout_s: float = 0) -> Any:
    """The tired engineer's read."""
    return journal.read_stale(look)


ACCOUNTS = [b"%d" % number for number in range(4)]


class Payer:
    """Moves money between accounts, and counts in the same updates what it moved."""

    def __init__(self, table: Table, number: int, rng: random.Random) -> None:
        self.log = b"log-%d" % number
        self.moved = self.unknown = 0
        self._table = table
        self._rng = rng

    async def pay(self) -> None:
        """One move, of what was read at one moment."""
        rows = await self._table.get_many([*ACCOUNTS, self.log], family=b"eur")
        balances = [int(row.value) for row in rows[:4] if row is not None]
        assert len(balances) == 4 and sum(balances) == 400
        one, other = self._rng.sample(range(4), 2)
        amount = self._rng.randint(1, 9)
        a, b, entry = rows[one], rows[other], rows[4]
        assert a is not None and b is not None
        writes = [
            TablePut(a.key, b"%d" % (balances[one] - amount), if_version=a.version),
            TablePut(b.key, b"%d" % (balances[other] + amount), if_version=b.version),
            TablePut(self.log, b"%d" % (int(entry.value) + 1 if entry else 1)),
        ]
        try:
            await self._table.update(writes, family=b"eur")
            self.moved += 1
        except PreconditionFailed:
            pass
        except RangelogError as error:
            assert error.outcome_unknown
            self.unknown += 1


@pytest.mark.parametrize("seed", range(6))
async def test_updates_of_a_family_are_seen_wholly(seed: int, tmp_path: Path) -> None:
    """Accounts between which money moves: each read of all of them has the same sum, and no move is lost or done twice."""
    rng = random.Random(seed)
    async with TableCluster(tmp_path, seed=seed, trouble=0.3, limits=LIMITS) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=2)
        table = tables.table("t")
        await table.update([TablePut(name, b"100") for name in ACCOUNTS], family=b"eur")
        payers = [Payer(cluster.tables().table("t"), number, rng) for number in range(4)]

        async def pay(payer: Payer) -> None:
            for _ in range(8):
                await payer.pay()

        async def move() -> None:
            for _ in range(3):
                await turns(rng.randint(50, 300))
                await cluster.move(next(iter(cluster.owned_by)))

        await asyncio.gather(move(), *(pay(each) for each in payers))
        rows = await table.get_many([each.log for each in payers], family=b"eur")
        for payer, row in zip(payers, rows, strict=True):
            done = int(row.value) if row is not None else 0
            assert payer.moved <= done <= payer.moved + payer.unknown
        assert sum(payer.moved for payer in payers)


@pytest.mark.parametrize("seed", range(8))
async def test_a_scan_and_a_watch_from_before_it_are_the_table(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes between and during both, over changes of owners; the watch is broken off and goes on."""
    monkeypatch.setattr("rangelog._table.scan.PAGE_ROWS", 2)
    monkeypatch.setattr("rangelog._table.watch.WAIT_MS", 20)
    rng = random.Random(seed)
    async with TableCluster(tmp_path, seed=seed, trouble=0.2, limits=LIMITS) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=3)
        table = tables.table("t")
        for number in range(9):
            await table.put(b"%d" % number, b"first")
        done = asyncio.Event()

        async def change() -> None:
            other = cluster.tables().table("t")
            for number in range(40):
                key = b"%d" % rng.randrange(12)
                await (other.delete(key) if rng.random() < 0.3 else other.put(key, b"%d" % number))
                if number % 13 == 5:
                    await cluster.move(rng.choice(list(cluster.owned_by)))
            await asyncio.gather(*(other.put(b"end-%d" % number, b"") for number in range(20)))
            done.set()

        copy: dict[bytes, bytes] = {}
        versions: dict[int, int] = {}

        async def follow() -> None:
            position = await table.position()
            copy.update({row.key: row.value async for row in table.scan()})
            ends: set[bytes] = set()
            while len(ends) < 20:
                watch = await table.watch(since=position)
                left = rng.randint(1, 9)
                async for each in watch:
                    assert each.version >= versions.get(each.partition, 0), "in order of versions"
                    versions[each.partition] = each.version
                    if each.value is None:
                        copy.pop(each.key, None)
                    else:
                        copy[each.key] = each.value
                    ends.update([each.key] if each.key.startswith(b"end") else [])
                    left -= 1
                    if not left or len(ends) == 20:
                        break
                assert all(watch.position()[number] >= position[number] for number in position)
                position = watch.position()

        await asyncio.gather(change(), follow())
        assert copy == {row.key: row.value async for row in table.scan()}


async def test_a_watch_returns_the_last_change_of_each_row(tmp_path: Path) -> None:
    """With its version; of one family, or of a prefix, or of everything."""
    async with TableCluster(tmp_path) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=2)
        table = tables.table("t")
        position = await table.position()
        await table.put(b"x", b"1", family=b"f")
        version = await table.put(b"x", b"2", family=b"f")
        await table.put(b"y", b"3", family=b"g")
        await table.put(b"z", b"4")
        await table.delete(b"z")
        watch = await table.watch(family=b"f", since=position)
        first = await anext(watch.changes())
        assert (first.key, first.value, first.version, first.family) == (b"x", b"2", version, b"f")
        assert watch.position()[first.partition] >= version
        gone = await anext((await table.watch(prefix=b"z", since=position)).changes())
        assert (gone.key, gone.value, gone.family) == (b"z", None, None)
        everything = await table.watch(all_families=True, since=position)
        found = set()
        async for change in everything:
            found.add((change.family, change.key, change.value))
            if len(found) == 3:
                break
        assert found == {(b"f", b"x", b"2"), (b"g", b"y", b"3"), (None, b"z", None)}
        with pytest.raises(RangelogError, match="names a version"):
            await table.watch(since={})


async def test_a_watch_waits_for_changes(tmp_path: Path) -> None:
    """It is woken by the change, long before its call ends."""
    async with TableCluster(tmp_path) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=2)
        table = tables.table("t")
        changes = (await table.watch()).changes()
        waiting = asyncio.ensure_future(anext(changes))
        await turns(200)
        assert not waiting.done()
        async with asyncio.timeout(2):
            await table.put(b"k", b"v")
            change = await waiting
        assert (change.key, change.value) == (b"k", b"v")
        await changes.aclose()


async def test_a_watch_from_too_far_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And never a hole."""
    monkeypatch.setattr(machine, "CHANGES_MAX", 5)
    async with TableCluster(tmp_path) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=1)
        table = tables.table("t")
        position = await table.position()
        for number in range(9):
            await table.put(b"%d" % number, b"v")
        with pytest.raises(OffsetTrimmed, match="scan the table"):
            await anext((await table.watch(since=position)).changes())


async def test_more_than_a_window_is_in_doubt_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a session stay within what the journal keeps, and everything is done once."""
    monkeypatch.setattr(numbering, "WINDOW", 20)
    monkeypatch.setattr(numbering, "BATCH_COMMANDS_MAX", 7)
    async with TableCluster(tmp_path, seed=5, trouble=0.4) as cluster:
        tables = cluster.tables()
        await tables.create("t", partitions=1)
        table = tables.table("t")
        versions = await asyncio.gather(*(table.put(b"%d" % number, b"v") for number in range(200)))
        assert sorted(versions) == list(range(1, 201))
