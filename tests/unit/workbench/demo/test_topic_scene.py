"""The parts of the demo's second scene that need no cluster: counts, deliveries, comparison, pauses, outcome, report."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog import KeyRange, ShardInfo, TablePut, TableRow
from rangelog_core.errors import Corruption, Overloaded, PreconditionFailed, RequestTimeout, Unavailable
from rangelog_core.key_ranges import KEY_SPACE_END
from rangelog_demo.ack_log import LoggedAck
from rangelog_demo.flights import Flight
from rangelog_demo.timeline import Kill, make_timeline
from rangelog_demo.topic import counting, deliveries, gaps, outcome, scaling, section
from rangelog_demo.topic.comparison import TopicComparison
from rangelog_demo.topic.counts import CountRow, counted, decode_row, encode_row
from rangelog_demo.topic.deliveries import Delivery, DeliveryCheck
from rangelog_pd.reconcile.scaling_policy import is_hot

MS = 1_000_000
HALF = KEY_SPACE_END // 2
SHARDS = [
    ShardInfo(0, KeyRange(0, KEY_SPACE_END), 10, 1, ended_version=2, successors=(1, 2), end_offset=4),
    ShardInfo(1, KeyRange(0, HALF), 11, 2, predecessors=(0,)),
    ShardInfo(2, KeyRange(HALF, KEY_SPACE_END), 12, 2, predecessors=(0,)),
]
"""A topic that was split once."""


# ---- counts


def test_records_that_are_delivered_again_change_no_row() -> None:
    """Only records at or above a row's position count, carrier by carrier."""
    first = counted({}, 0, [b"UA", b"AA", b"UA"])
    assert first == {b"UA": CountRow(2, 3), b"AA": CountRow(1, 2)}
    assert counted(first, 0, [b"UA", b"AA", b"UA"]) == {}
    assert counted(first, 1, [b"AA", b"UA", b"AA", b"DL"]) == {b"AA": CountRow(2, 4), b"DL": CountRow(1, 5)}


def test_row_in_the_table_is_read_as_it_was_written() -> None:
    """The value of a row is its count and position; another value is refused."""
    assert decode_row(encode_row(CountRow(3, 9)), 7) == CountRow(3, 9, 7)
    for bad in (b"", b"3", b'{"count": 1}', b'{"count": 1, "position": null}'):
        with pytest.raises(Corruption):
            decode_row(bad, 1)


class FakeTable:
    """Rows with versions and conditions, as a table has them; a change may fail before or after it was made."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.rows: dict[bytes, dict[bytes, TableRow]] = {}
        self.version = 0
        self._dice = dice

    async def scan(self, *, family: bytes) -> AsyncIterator[TableRow]:
        """The rows of a family."""
        for row in list(self.rows.get(family, {}).values()):
            yield row

    async def scan_all(self) -> AsyncIterator[TableRow]:
        """All rows."""
        for family in self.rows:
            async for row in self.scan(family=family):
                yield row

    async def update(self, writes: Sequence[TablePut], *, family: bytes) -> int:
        """All of it or nothing."""
        fault = self._dice.choice(["none", "none", "before", "after"]) if self._dice is not None else "none"
        if fault == "before":
            raise Overloaded("not sent")
        rows = self.rows.setdefault(family, {})
        for write in writes:
            found = rows.get(write.key)
            if (found is not None) if write.if_absent else (found is None or found.version != write.if_version):
                raise PreconditionFailed("somebody else was first")
        self.version += 1
        rows.update((write.key, TableRow(write.key, write.value, self.version, family)) for write in writes)
        if fault == "after":
            raise RequestTimeout("no reply", outcome_unknown=True)
        return self.version


async def counts_of(table: FakeTable) -> dict[str, int]:
    """Carrier → count."""
    return dict(await counting.read_counts(table))  # type: ignore[arg-type]


async def test_member_that_was_taken_for_dead_counts_nothing_twice() -> None:
    """Two members that count the same records, one with rows of long ago, leave each record counted once."""
    table = FakeTable()
    one, other = (counting.ConditionalCounting(table) for _ in range(2))  # type: ignore[arg-type]
    await one.count(0, 0, [b"UA", b"AA"])
    await other.count(0, 0, [b"UA", b"AA", b"UA"])
    await one.count(0, 2, [b"UA", b"DL"])  # the rows that it knows are old
    await other.count(0, 3, [b"DL", b"AA"])
    assert await counts_of(table) == {"UA": 2, "AA": 2, "DL": 1}


async def test_counts_of_shards_add_up() -> None:
    """A carrier has a row in each shard; its positions do not mix."""
    table = FakeTable()
    job = counting.ConditionalCounting(table)  # type: ignore[arg-type]
    await job.count(0, 0, [b"UA", b"UA"])
    await job.count(1, 0, [b"UA"])
    assert await counts_of(table) == {"UA": 3}


@pytest.mark.parametrize("seed", range(5))
async def test_counts_are_exact_through_faults_and_repeats(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are replaced at any time, repeat records, and whose changes fail with any outcome: each record once."""
    monkeypatch.setattr(counting, "_PAUSE_S", 0)
    dice = random.Random(seed)
    records = [dice.choice([b"UA", b"AA", b"DL"]) for _ in range(300)]
    table = FakeTable(dice)
    members = [counting.ConditionalCounting(table) for _ in range(2)]  # type: ignore[arg-type]
    at = 0
    while at < len(records):
        if dice.random() < 0.2:
            members[dice.randrange(2)] = counting.ConditionalCounting(table)  # type: ignore[arg-type]
        start = max(0, at - dice.randrange(10))  # from the last committed position on
        at = min(len(records), start + 10 + dice.randrange(10))
        await dice.choice(members).count(0, start, records[start:at])
    assert await counts_of(table) == {each.decode(): records.count(each) for each in {*records}}


async def test_refused_change_ends_the_job() -> None:
    """An error that no second try removes is raised, and so is one that lasts."""
    table = FakeTable()
    table.rows[b"shard-0"] = {b"UA": TableRow(b"UA", b"?", 1, b"shard-0")}
    with pytest.raises(Corruption):
        await counting.ConditionalCounting(table).count(0, 0, [b"UA"])  # type: ignore[arg-type]


async def test_table_that_refuses_for_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit the job ends with RequestTimeout, which names the shard."""
    monkeypatch.setattr(counting, "_TIMEOUT_S", 0.0)

    async def update(*_: object, **__: object) -> int:
        raise Overloaded("full")

    table = FakeTable()
    monkeypatch.setattr(table, "update", update)
    with pytest.raises(RequestTimeout, match="shard 3"):
        await counting.ConditionalCounting(table).count(3, 0, [b"UA"])  # type: ignore[arg-type]


# ---- deliveries


def test_delivery_log_survives_a_cut_note(tmp_path: Path) -> None:
    """Whole notes come back in order; a missing file is a member that was given nothing."""
    path = tmp_path / "deliveries"
    assert list(deliveries.read_deliveries(path)) == []
    log = deliveries.DeliveryLog(path)
    log.delivered(1, 0, 5)
    log.delivered(2, 5, 6)
    log.close()
    path.write_bytes(path.read_bytes() + b"cut")
    assert [found[1:] for found in deliveries.read_deliveries(path)] == [(1, 0, 5), (2, 5, 6)]


ENDS = {0: 4, 1: 3, 2: 2}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(0, 0, 4), (1, 0, 3), (2, 0, 2)], DeliveryCheck(9, 0, 0, 0)),
        ([(0, 0, 3), (0, 1, 4), (2, 0, 2), (1, 0, 3), (1, 1, 2)], DeliveryCheck(9, 3, 0, 0)),
        ([(0, 0, 2), (0, 3, 4), (1, 0, 3), (2, 0, 2)], DeliveryCheck(9, 0, 0, 1)),
        ([(0, 0, 3), (1, 0, 3), (0, 3, 4), (2, 0, 2)], DeliveryCheck(9, 0, 0, 1)),
        ([(0, 0, 4), (1, 0, 2)], DeliveryCheck(6, 0, 3, 0)),
        ([(1, 0, 3)], DeliveryCheck(3, 0, 6, 1)),
    ],
)
def test_deliveries_are_checked(given: list[tuple[int, int, int]], expected: DeliveryCheck) -> None:
    """Repeats are counted and are no fault; a gap, a shard before its predecessor's end, and missing records are."""
    notes = [Delivery(time_ns, *fields) for time_ns, fields in enumerate(given)]
    assert deliveries.check_deliveries(reversed(notes), SHARDS, ENDS) == expected


# ---- comparison

FLIGHTS = [Flight(i, b"UA" if i < 4 else b"AA", b"%d" % i) for i in range(8)]
PLACES = {0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (1, 0), 4: (0, 3), 5: (2, 0), 6: (2, 1), 7: (2, 2)}
"""Flight → shard and offset."""
ACKS = [LoggedAck(flight, 1, 2, offset, shard) for flight, (shard, offset) in PLACES.items()]


def compared(order: Sequence[int], acks: Sequence[LoggedAck] = ACKS) -> TopicComparison:
    """The comparison of these flights in this order, of two producers, each where it was acked."""
    found = TopicComparison(FLIGHTS, acks, 2)
    for index in order:
        found.add(*PLACES[index], FLIGHTS[index].timestamp_ms, FLIGHTS[index].key, FLIGHTS[index].value)
    return found


@pytest.mark.parametrize(
    ("order", "lost", "duplicated", "misordered"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 0, 0, 0),
        ([4, 0, 1, 5, 3, 2, 7, 6], 0, 0, 0),  # other producers' and other carriers' flights in any order
        ([0, 1, 2, 4, 5, 6, 7], 1, 0, 0),
        ([0, 1, 1, 2, 3, 4, 5, 6, 7], 0, 1, 0),
        ([2, 1, 0, 3, 4, 5, 6, 7], 0, 0, 1),
    ],
)
def test_comparison_of_a_topic(order: list[int], lost: int, duplicated: int, misordered: int) -> None:
    """Loss, repeat and disorder are told apart; the order is that of each carrier's flights of one producer."""
    found = compared(order)
    assert (found.lost, found.duplicated, found.misordered) == (lost, duplicated, misordered)
    assert found.ok == (not (lost or duplicated or misordered))


def test_comparison_notices_wrong_acks_and_altered_records() -> None:
    """An ack of another place, a flight that was not acked, and another timestamp, key or value are faults."""
    assert compared(range(8), ACKS[1:]).misplaced == 1
    moved = [ACKS[0]._replace(shard=1), *ACKS[1:]]
    assert compared(range(8), moved).misplaced == 1
    found = TopicComparison(FLIGHTS, ACKS, 2)
    found.add(0, 0, 9, b"UA", b"0")
    found.add(0, 1, 1, b"UA", b"unknown")
    assert found.altered == 2
    assert not found.ok


# ---- pauses


def test_pause_of_one_shard_counts_while_others_go_on() -> None:
    """The longest pause is that of a shard; a follower's first pause begins with its predecessors' last ack."""
    acks = [LoggedAck(i, 0, i * MS, i, 0) for i in range(1, 5)]
    acks += [LoggedAck(i, 0, (34 + 10 * i) * MS, i, 1) for i in range(5)]
    acks += [LoggedAck(i, 0, (5 + i) * MS, i, 2) for i in range(70)]
    acks.append(LoggedAck(99, 1, None, None, 2))
    times = gaps.ack_times(acks, SHARDS)
    assert gaps.longest_gap_ms(times) == 30
    kills = [Kill("a broker", "broker1", 40 * MS), Kill("a broker", "broker2", 73 * MS)]
    gaps.set_gaps(kills, times)
    assert [kill.gap_ms for kill in kills] == [10, 10]
    assert gaps.longest_gap_ms({}) == 0


def test_the_load_makes_the_last_number_of_shards() -> None:
    """At any pace the first shard is hot, so are equal parts of it, and the policy ends at the last number."""
    for flights_per_s in (1.0, 70.0, 12_000.0):
        policy = scaling.scaling_policy(flights_per_s)
        assert policy.shards_min == policy.shards_max == outcome.SHARDS_LAST
        if flights_per_s > 10:
            assert is_hot([round(flights_per_s)] * 4, policy.target_per_s)
            assert is_hot([round(flights_per_s / outcome.SHARDS_LAST)] * 4, policy.target_per_s)


async def test_scales_are_noted_as_they_are_committed() -> None:
    """From when the topic is seen scaling to when it has other shards; a cluster that fails for a while changes nothing."""
    seen: list[Any] = [("active", 1), Unavailable("no"), ("scaling", 1), ("scaling", 1), ("active", 2), ("active", 4)]
    done = asyncio.Event()

    async def describe(name: str) -> SimpleNamespace:
        if not seen:
            done.set()
            await asyncio.Event().wait()
        found = seen.pop(0)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(state=found[0], shard_count=found[1])

    marks: list[outcome.ScaleMark] = []
    client: Any = SimpleNamespace(topics=SimpleNamespace(describe=describe))
    watching = asyncio.create_task(scaling.watch_scales(client, "t", marks))
    await asyncio.wait_for(done.wait(), 20)
    watching.cancel()
    assert [each.shards for each in marks] == [2, 4]
    assert marks[0].started_ns < marks[0].committed_ns
    assert marks[1].started_ns == marks[1].committed_ns, "it was so fast that nobody saw it scaling"


# ---- outcome


def whole_outcome() -> outcome.TopicOutcome:
    """An outcome of eight flights with which everything is in order."""
    shards = [*SHARDS, *(ShardInfo(each, KeyRange(each, each + 1), each, 3) for each in (3, 4))]
    kills = [Kill("a broker", "broker<1>", 1 * MS, 2 * MS), Kill("a broker", "broker2", 2 * MS)]
    found = outcome.TopicOutcome(8, acked=8, shards=shards, comparison=compared(range(8)), longest_gap_ms=12.4)
    found.timeline = make_timeline([ack._replace(acked_ns=ack.flight * MS) for ack in ACKS], kills)
    found.scales = [outcome.ScaleMark(4, 2 * MS, 3 * MS)]
    found.members = [outcome.MemberLife("member-1", 8, "killed; member-4 took its place")]
    found.member_kills = [Kill("a member of the group", f"member-{each}", MS) for each in range(3)]
    found.deliveries = DeliveryCheck(8, 3, 0, 0)
    found.counts = found.expected = {"UA": 4, "AA": 4}
    return found


def test_scene_s_part_of_the_last_line() -> None:
    """The agreed part, word for word."""
    assert whole_outcome().ok
    assert whole_outcome().line == (
        "topic_records=8 topic_lost=0 topic_duplicated=0 order_violations=0 broker_kills=2 "
        "longest_topic_gap_ms=12 table_matches=yes"
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("counts", {"UA": 4, "AA": 3}, "table_matches=no"),
        ("expected", {}, "table_matches=no"),
        ("comparison", compared([1, 3, 0, 2, 4, 5, 6]), "topic_records=7 topic_lost=1"),
        ("comparison", compared([2, 0, 1, 3, 4, 5, 6, 7]), "order_violations=1"),
        ("deliveries", DeliveryCheck(8, 0, 0, 2), "order_violations=2"),
        ("deliveries", DeliveryCheck(7, 0, 1, 0), "table_matches=yes"),
        ("acked", 7, "table_matches=yes"),
        ("shards", SHARDS, "table_matches=yes"),
        ("member_kills", [], "table_matches=yes"),
    ],
)
def test_one_wrong_figure_fails_the_scene(name: str, value: object, expected: str) -> None:
    """Each figure is checked, whether or not the last line has it."""
    found = whole_outcome()
    setattr(found, name, value)
    assert not found.ok
    assert expected in found.line


def test_sections_of_the_report() -> None:
    """The scene's sections hold plot, scales, kills, members and counts, and escape what they show."""
    page = "".join(section.topic_sections(whole_outcome(), "slowly & surely"))
    for text in (
        "<svg",
        "broker&lt;1&gt;",
        "to 4 shards",
        "member-4 took its place",
        "slowly &amp; surely",
        "<td>UA</td>",
    ):
        assert text in page
    for reference in ("src=", "<link", "<script", "url(http"):
        assert reference not in page
