"""What brokers keep, filled up to each documented bound: one more is refused, and the next owner opens what there is.

The table of bounds: tests/tidy/test_limits_table.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangelog_broker.groups import group as groups
from rangelog_broker.groups import machine as group_machine
from rangelog_broker.groups.checkpoints import CHECKPOINTS_MAX
from rangelog_broker.groups.kind import GROUPS
from rangelog_broker.groups.snapshots import message_of
from rangelog_broker.journal import sessions
from rangelog_broker.journal.entry import Command, Entry, Open, Own
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.joint_machine import command_for
from rangelog_broker.journal.machine import JournalMachine
from rangelog_broker.journal.sessions import UNSETTLED_MAX, Result
from rangelog_broker.kinds import coordinator_machine
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.side_entry import SideFold, encode_snapshot, encode_staged
from rangelog_broker.shards.staging import Staging
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.submission_window import RUNS_MAX, PlacedRun
from rangelog_broker.shards.transactional import STAGED_BYTES_MAX
from rangelog_broker.tables import machine as tables
from rangelog_broker.tables.machine import TablePartition
from rangelog_broker.transactions.coordinator import PARTICIPANTS_MAX, TIMEOUT_MS_MAX
from rangelog_broker.transactions.kind import TRANSACTIONS
from rangelog_broker.watermarks import topic_times
from rangelog_broker.watermarks.kind import WATERMARKS
from rangelog_core.batch_extension import Producer, Submission
from rangelog_core.errors import Overloaded, RecordTooLarge
from rangelog_core.limits import (
    MIB,
    RECORD_SIZE_BYTES_MAX,
    TABLE_COMMAND_BYTES_MAX,
    TABLE_KEY_BYTES_MAX,
    TABLE_VALUE_BYTES_MAX,
    TABLE_WRITES_MAX,
)
from rangelog_proto.v1 import group_pb2, table_pb2, transaction_pb2, watermark_pb2
from tests.support.journal_machines import reopened
from tests.support.whole_broker import whole_broker

pytestmark = pytest.mark.timeout(600)
NOW_MS = 1_000
LONG = "m" * 190
KINDS: dict[int, Any] = {
    GROUPS.number: group_pb2.GroupCommand,
    TRANSACTIONS.number: transaction_pb2.TransactionCommand,
    WATERMARKS.number: watermark_pb2.WatermarkCommand,
}


class Owner:
    """A journal's owner, without its stream."""

    def __init__(self, machine: JournalMachine) -> None:
        self.fold: Fold[Any] = Fold(machine)

    def apply(self, entry: Entry) -> Result:
        """Apply an entry; return its result."""
        result = self.fold.apply(self.fold.applied_offset, entry)
        assert result is not None
        return result

    def refusal(self, part: int, **fields: Any) -> str:
        """Apply a command of the owner; return the code of its refusal, or nothing."""
        return self.apply(Own(NOW_MS, command_for(part, KINDS[part](**fields).SerializeToString()))).error_code

    def dies(self, first: JournalMachine) -> None:
        """The next owner has the same state."""
        former = self.fold
        self.fold = reopened(former, first)
        assert list(self.fold.snapshot()) == list(former.snapshot())
        assert self.fold.size_bytes == former.size_bytes


IN_SHARES = pytest.mark.parametrize("share", [50, pytest.param(1, marks=pytest.mark.long)])
"""Of a bound that takes long to reach; the whole one is `long`."""


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Of a coordinator's journal; it dies at the end of the test, and its successor does."""
    made = Owner(coordinator_machine(0))
    yield made
    made.dies(coordinator_machine(0))
    made.dies(coordinator_machine(0))


def _join(member: str, topic_ids: list[int]) -> group_pb2.GroupJoin:
    return group_pb2.GroupJoin(member=member, session_ms=1_000, topic_ids=topic_ids)


@IN_SHARES
def test_a_group_of_all_its_bounds(owner: Owner, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members, topics, shards with metadata, and complete checkpoints, all at once, with long names."""
    for name in ("MEMBERS_MAX", "TOPICS_MAX", "SHARDS_MAX"):
        monkeypatch.setattr(groups, name, getattr(groups, name) // share)
    count, per_topic = groups.SHARDS_MAX, groups.SHARDS_MAX // groups.TOPICS_MAX
    topics = list(range(1, groups.TOPICS_MAX + 1))
    assert not owner.refusal(GROUPS.number, group="g", join=_join("m", topics))
    assert not owner.refusal(GROUPS.number, group="g", leave=group_pb2.GroupLeave(member="m"))
    facts = [group_pb2.GroupShardFacts(shard_id=each) for each in range(per_topic)]
    for topic_id in topics:
        learned = group_pb2.GroupShards(topic_id=topic_id, map_version=1, shards=facts)
        assert not owner.refusal(GROUPS.number, group="g", shards=learned)
    over = group_pb2.GroupShards(topic_id=1, map_version=2, shards=[*facts, group_pb2.GroupShardFacts(shard_id=99)])
    assert owner.refusal(GROUPS.number, group="g", shards=over) == "OVERLOADED"
    assert owner.refusal(GROUPS.number, group="g", join=_join("m0", [*topics, 10_000])) == "OVERLOADED"
    assert not owner.refusal(GROUPS.number, group="g", join=_join("m0", []))
    found = owner.fold.machine.parts[GROUPS.number].groups["g"]
    metadata = b"x" * groups.METADATA_BYTES_MAX
    held = [
        group_pb2.GroupPosition(shard=message_of(key), offset=9, since=shard.since, metadata=metadata)
        for key, shard in found.shards.items()
    ]
    for at in range(0, count, 1_000):
        commit = group_pb2.GroupCommit(member="m0", positions=held[at : at + 1_000])
        assert not owner.refusal(GROUPS.number, group="g", commit=commit)
    for number in range(1, CHECKPOINTS_MAX + 2):  # the oldest one goes
        assert not owner.refusal(GROUPS.number, group="g", checkpoint=group_pb2.GroupCheckpoint(name=f"c{number}"))
        for at in range(0, count, 1_000):
            reach = group_pb2.GroupReach(member="m0", number=number, positions=held[at : at + 1_000])
            assert not owner.refusal(GROUPS.number, group="g", reach=reach)
    for number in range(1, groups.MEMBERS_MAX):
        assert not owner.refusal(GROUPS.number, group="g", join=_join(f"{LONG}{number}", []))
    assert owner.refusal(GROUPS.number, group="g", join=_join("one-more", [])) == "OVERLOADED"
    assert (len(found.members), len(found.topics), len(found.shards)) == (groups.MEMBERS_MAX, groups.TOPICS_MAX, count)
    assert len(found.checkpoints.complete) == CHECKPOINTS_MAX
    assert {len(each.metadata) for each in found.shards.values()} == {groups.METADATA_BYTES_MAX}


def test_groups_of_a_coordinator(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled to a hundred."""
    monkeypatch.setattr(group_machine, "GROUPS_MAX", group_machine.GROUPS_MAX // 1_000)
    for number in range(group_machine.GROUPS_MAX):
        assert not owner.refusal(GROUPS.number, group=f"g{number}", join=_join("m", [1]))
    assert owner.refusal(GROUPS.number, group="one-more", join=_join("m", [1])) == "OVERLOADED"


@IN_SHARES
def test_sessions_and_their_results(owner: Owner, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions of a journal, and the unsettled results of one of them."""
    monkeypatch.setattr(sessions, "SESSIONS_MAX", sessions.SESSIONS_MAX // share)
    for number in range(1, sessions.SESSIONS_MAX + 1):
        assert not owner.apply(Open(NOW_MS, number)).error_code
    assert owner.apply(Open(NOW_MS, sessions.SESSIONS_MAX + 1)).error_code == "OVERLOADED"
    command = command_for(GROUPS.number, group_pb2.GroupCommand(group="g", leave={"member": "m"}).SerializeToString())
    for sequence in range(UNSETTLED_MAX):
        assert owner.apply(Command(NOW_MS, 1, sequence, 0, command)).error_code != "OVERLOADED"
    assert owner.apply(Command(NOW_MS, 1, UNSETTLED_MAX, 0, command)).error_code == "OVERLOADED"


def test_a_transaction_of_many_shards(owner: Owner) -> None:
    """As many participants as there may be, for as long as it may take."""
    name = transaction_pb2.TransactionName(transactional_id="x" * 200, producer_id=1, epoch=1, number=1)

    def init(timeout_ms: int) -> str:
        begun = transaction_pb2.TransactionInit(transactional_id=name.transactional_id, timeout_ms=timeout_ms)
        return owner.refusal(TRANSACTIONS.number, init=begun)

    def commit(count: int) -> str:
        shards = [transaction_pb2.Participant(topic_id=1 << 40, shard_id=each) for each in range(count)]
        return owner.refusal(
            TRANSACTIONS.number, commit=transaction_pb2.TransactionCommit(name=name, participants=shards)
        )

    assert init(TIMEOUT_MS_MAX + 1) == "INVALID_ARGUMENT"
    assert not init(TIMEOUT_MS_MAX)
    assert not owner.refusal(TRANSACTIONS.number, begin=transaction_pb2.TransactionBegin(name=name))
    assert commit(PARTICIPANTS_MAX + 1) == "INVALID_ARGUMENT"
    assert not commit(PARTICIPANTS_MAX)


@IN_SHARES
def test_watermarks_and_who_notes(owner: Owner, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many producers as may note times, and as many watermarks as are kept."""
    for name in ("PRODUCERS_MAX", "WATERMARKS_MAX"):
        monkeypatch.setattr(topic_times, name, getattr(topic_times, name) // share)
    shards = watermark_pb2.WatermarkShards(map_version=1, shards=[group_pb2.GroupShardFacts(shard_id=0)])
    assert not owner.refusal(WATERMARKS.number, topic_id=1, shards=shards)

    def note(producer_id: int, number: int, time_ms: int) -> str:
        at = [watermark_pb2.NotedPosition(offset=time_ms)]
        noted = watermark_pb2.TimeNote(producer_id=producer_id, number=number, time_ms=time_ms, positions=at)
        return owner.refusal(WATERMARKS.number, topic_id=1, note=noted)

    for number in range(1, topic_times.WATERMARKS_MAX + 3):
        assert not note(1, number, number)
        computed = watermark_pb2.WatermarkCompute(expiry_ms=1_000)
        assert not owner.refusal(WATERMARKS.number, topic_id=1, compute=computed)
    for producer_id in range(2, topic_times.PRODUCERS_MAX + 1):
        assert not note(producer_id, 1, topic_times.WATERMARKS_MAX + 5)
    assert note(topic_times.PRODUCERS_MAX + 1, 1, 5) == "OVERLOADED"
    times = owner.fold.machine.parts[WATERMARKS.number].topics[1]
    assert (len(times.watermarks), len(times.producers)) == (topic_times.WATERMARKS_MAX, topic_times.PRODUCERS_MAX)


def _put(owner: Owner, *rows: tuple[bytes, bytes]) -> str:
    writes = [table_pb2.TableWrite(key=key, value=value) for key, value in rows]
    return owner.apply(Own(NOW_MS, table_pb2.TableCommand(writes=writes).SerializeToString())).error_code


def test_rows_of_a_partition() -> None:
    """Full, scaled to 8 MiB, of rows as large as they may be; the whole value: integration/test_table_limits.py."""
    owner = Owner(TablePartition(bytes_max=8 * MIB))
    key, value = b"k" * (TABLE_KEY_BYTES_MAX - 1), bytes(TABLE_VALUE_BYTES_MAX)
    number = 0
    while not (refused := _put(owner, (key + bytes((number,)), value))):
        number += 1
    assert refused == "STORAGE_FULL" and number == 8
    assert _put(owner, (b"k" * (TABLE_KEY_BYTES_MAX + 1), b"")) == "INVALID_ARGUMENT"
    assert _put(owner, (b"k", bytes(TABLE_VALUE_BYTES_MAX + 1))) == "INVALID_ARGUMENT"
    owner.dies(TablePartition(bytes_max=8 * MIB))
    assert _put(owner, (b"one more", value)) == "STORAGE_FULL"


@IN_SHARES
def test_updates_of_a_partition(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many writes as one update may have, as large as a command may be; then all changes that a watch can go back."""
    owner = Owner(TablePartition())
    size = TABLE_COMMAND_BYTES_MAX // TABLE_WRITES_MAX - 32
    rows = [(b"%06d" % each, bytes(size)) for each in range(TABLE_WRITES_MAX + 1)]
    assert _put(owner, *rows) == "INVALID_ARGUMENT"
    assert not _put(owner, *rows[:-1])
    monkeypatch.setattr(tables, "CHANGES_MAX", tables.CHANGES_MAX // share)
    for at in range(0, tables.CHANGES_MAX + TABLE_WRITES_MAX, TABLE_WRITES_MAX):
        assert not _put(owner, *[(b"%06d" % (at + each), b"") for each in range(TABLE_WRITES_MAX)])
    assert len(owner.fold.machine._changes) == tables.CHANGES_MAX
    owner.dies(TablePartition())
    assert len(owner.fold.machine._changes) == tables.CHANGES_MAX


@IN_SHARES
def test_changes_of_long_keys(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes that are kept have as many bytes of keys as they may, and not more."""
    monkeypatch.setattr(tables, "CHANGES_BYTES_MAX", tables.CHANGES_BYTES_MAX // share)
    owner, per_update = Owner(TablePartition()), 20
    for at in range(0, tables.CHANGES_BYTES_MAX // TABLE_KEY_BYTES_MAX + 2 * per_update, per_update):
        keys = (b"%06d" % (at + each) for each in range(per_update))
        assert not _put(owner, *[(key.ljust(TABLE_KEY_BYTES_MAX, b"k"), b"") for key in keys])
    spare = (per_update + 1) * TABLE_KEY_BYTES_MAX  # the changes of an update go together
    assert 0 <= tables.CHANGES_BYTES_MAX - owner.fold.machine._changes_bytes < spare
    owner.dies(TablePartition())
    assert 0 <= tables.CHANGES_BYTES_MAX - owner.fold.machine._changes_bytes < spare


def test_what_is_staged_in_a_shard() -> None:
    """The side log of a shard with as much as may be staged gives it back, behind a snapshot and from the first record."""
    staging = Staging()
    records: list[bytes] = []
    batch, size = bytes(MIB - 1_000), 0
    while size + len(batch) <= STAGED_BYTES_MAX:
        producer = Producer(1, 1, len(records))
        staging.add(1, "job", producer, batch, len(records))
        records.append(encode_staged(1, "job", producer, batch))
        size += len(batch)
    assert staging.size_bytes + len(batch) > STAGED_BYTES_MAX
    fold = SideFold()
    for offset, record in enumerate([*records, *encode_snapshot(1, 0, list(staging.snapshot()))]):
        fold.feed(offset, record)
    fold.staging.all_acked()
    assert fold.staging.size_bytes == staging.size_bytes == size


def test_submissions_of_a_shard() -> None:
    """A window that is full takes no new one, and is in the records of a snapshot that the next owner opens."""
    owner = ShardOwner(ShardState.first(), 0)
    for number in range(RUNS_MAX):
        owner.offer(Submission(number.to_bytes(16, "big"), number, ((0, 1),)), 1)
    owner.confirmed(RUNS_MAX)
    with pytest.raises(Overloaded):
        owner.offer(Submission(b"n" * 16, 1, ((0, 1),)), 1)
    records = encode_snapshot(1, RUNS_MAX, list(owner.state.snapshot()))
    assert max(map(len, records)) <= RECORD_SIZE_BYTES_MAX
    fold = SideFold()
    for offset, record in enumerate(records):
        fold.feed(offset, record)
    assert fold.best is not None
    opened = ShardOwner(ShardState.restore(fold.best.pieces), RUNS_MAX)
    assert len(opened.state.submissions) == RUNS_MAX
    for number in range(0, RUNS_MAX, 999):
        submission = Submission(number.to_bytes(16, "big"), number, ((0, 1),))
        assert opened.offer(submission, 1) == [PlacedRun(0, 1, 0, number)]
    with pytest.raises(Overloaded):
        opened.offer(Submission(b"n" * 16, 1, ((0, 1),)), 1)


async def test_a_record_of_the_largest_size() -> None:
    """It is taken, and is there when the next owner has opened the shard; one more byte is refused."""
    async with whole_broker() as broker:
        topics = broker.client.topics
        await topics.create_namespace("ns")
        topic_id = (await topics.create("ns/t")).topic_id
        async with broker.client.producer("ns/t") as producer:
            with pytest.raises(RecordTooLarge):
                await producer.send(bytes(RECORD_SIZE_BYTES_MAX + 1))
            await producer.send(bytes(RECORD_SIZE_BYTES_MAX))
        await broker.everything_opens()
        assert await broker.cluster.read(topic_id, 0) == [bytes(RECORD_SIZE_BYTES_MAX)]
