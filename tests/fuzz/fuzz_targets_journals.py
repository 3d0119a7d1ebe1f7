"""A coordinator's journal: whatever its entries are, the next owner has the state that the owner had.

What holds: an acked entry can be applied, or is of a later program; a snapshot, and the log from its first entry on, come to
the same state; both owners give the next command the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from rangelog_broker.groups.kind import GROUPS
from rangelog_broker.journal.entry import Command, Entry, Level, Open, Own, Piece, Proof, decode_entry, encode_entry
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.joint_machine import JointMachine, command_for
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.kinds import coordinator_machine
from rangelog_broker.transactions.kind import TRANSACTIONS
from rangelog_broker.watermarks.kind import WATERMARKS
from rangelog_core.errors import UnsupportedVersion
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import group_pb2, transaction_pb2, watermark_pb2
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed, mutated
from tests.fuzz.fuzz_targets_state import framed, unframed
from tests.support.journal_machines import reopened

SESSION = 7
NOW_MS = 1_000_000
KINDS: dict[int, Any] = {
    GROUPS.number: group_pb2.GroupCommand,
    TRANSACTIONS.number: transaction_pb2.TransactionCommand,
    WATERMARKS.number: watermark_pb2.WatermarkCommand,
}
KNOWN = (0, 1, 1, 2, 3, 5, 9, 17, 1_000, 600_000, "g", "g", "m", "n", "job", "c", b"a")
PROBE = Own(NOW_MS + 50, command_for(GROUPS.number, group_pb2.GroupCommand(group="g", reset={}).SerializeToString()))


def commands() -> list[bytes]:
    """What a group of two members and a program live through."""
    group, transaction, mark = group_pb2, transaction_pb2, watermark_pb2
    first, second = group.GroupShard(topic_id=1), group.GroupShard(topic_id=1, shard_id=1)
    facts = [group.GroupShardFacts(shard_id=each) for each in (0, 1)]
    at = [group.GroupPosition(shard=first, offset=5, since=1, metadata=b"a")]
    name = transaction.TransactionName(transactional_id="job", producer_id=1, epoch=1, number=1)
    staged = group.GroupCommit(member="m", positions=at, joined=1)
    of_groups: list[dict[str, Any]] = [
        {"join": group.GroupJoin(member="m", session_ms=1_000, topic_ids=[1])},
        {"shards": group.GroupShards(topic_id=1, map_version=1, shards=facts)},
        {"retain": group.GroupRetain(retains=True)},
        {"commit": staged},
        {"checkpoint": group.GroupCheckpoint(name="c", every_ms=9)},
        {"join": group.GroupJoin(member="n", session_ms=1_000, topic_ids=[1])},
        {"weigh": group.GroupWeigh(weights=[group.GroupWeight(shard=second, weight=5)])},
        {"release": group.GroupRelease(member="m", positions=at, joined=1)},
        {"stage": group.GroupStage(transactional_id="job", producer_id=1, number=1, commit=staged)},
        {"reset": group.GroupReset(positions=at)},
        {"leave": group.GroupLeave(member="n", joined=2)},
    ]
    of_programs: list[dict[str, Any]] = [
        {"init": transaction.TransactionInit(transactional_id="job", timeout_ms=1_000)},
        {"begin": transaction.TransactionBegin(name=name)},
        {"commit": transaction.TransactionCommit(name=name)},
    ]
    note = mark.TimeNote(producer_id=1, number=1, time_ms=5, positions=[mark.NotedPosition(shard_id=1, offset=9)])
    of_marks: list[dict[str, Any]] = [
        {"shards": mark.WatermarkShards(map_version=1, shards=facts)},
        {"note": note},
        {"compute": mark.WatermarkCompute(expiry_ms=1_000)},
    ]
    return [
        *(command_for(GROUPS.number, group.GroupCommand(group="g", **each).SerializeToString()) for each in of_groups),
        *(
            command_for(TRANSACTIONS.number, transaction.TransactionCommand(**each).SerializeToString())
            for each in of_programs
        ),
        *(
            command_for(WATERMARKS.number, mark.WatermarkCommand(topic_id=1, **each).SerializeToString())
            for each in of_marks
        ),
    ]


def entries() -> list[Entry]:
    """The commands above, of a session and of the owner."""
    asked = [Command(NOW_MS + at, SESSION, at, max(0, at - 3), command) for at, command in enumerate(commands())]
    own = [Own(NOW_MS + 20 + at, command) for at, command in enumerate(commands())]
    return [Open(NOW_MS, SESSION), *asked[:4], Level(FEATURE_LEVEL), Proof(), *asked[4:], *own, Open(NOW_MS)]


def seeds() -> list[bytes]:
    """Whole journals and parts of them."""
    values = [encode_entry(each) for each in entries()]
    return [framed(values), framed(values[:6]), framed(values[8:]), framed(values[::-1])]


def run(data: bytes) -> bool:
    """See the module."""
    log = [decode_entry(value) for value in unframed(data)]
    log = [each for each in log if not isinstance(each, Piece)]  # an owner's snapshots are what is made below
    fold = Fold(coordinator_machine(0))
    failures: list[Exception] = []
    fold.on_failed = lambda _, error: failures.append(error)
    for offset, entry in enumerate(log):
        try:
            fold.apply(offset, entry)
        except UnsupportedVersion:
            return False  # the owner ends here, and so does every other one of this program
    if failures:
        raise failures[0]
    opened_from_first = _replayed([encode_entry(each) for each in log])
    opened_from_snapshot = reopened(fold, coordinator_machine(0))
    for twin in (opened_from_first, opened_from_snapshot):
        assert list(twin.snapshot()) == list(fold.snapshot()), "the next owner has another state"
        assert twin.size_bytes == fold.size_bytes, "the next owner has another size"
        assert (twin.level, twin.now_ms) == (fold.level, fold.now_ms), "the next owner has other rules, or another time"
    results = {fold.apply(len(log), PROBE), opened_from_first.apply(len(log), PROBE)}
    assert len(results | {_applied(opened_from_snapshot, PROBE)}) == 1, "the next owner gives another result"
    return bool(log)


def _replayed(records: Sequence[bytes]) -> Fold[JointMachine]:
    """The fold of the next owner of a journal that was never trimmed."""
    replay = JournalReplay(coordinator_machine(0), 0)
    for offset, record in enumerate(records):
        replay.feed(offset, record)
    return replay.finish(len(records))


def _applied(fold: Fold[JointMachine], entry: Entry) -> Any:
    """The result at the offset that comes next: the pieces are entries, too."""
    return fold.apply(fold.applied_offset, entry)


def change_entries(data: bytes, random: Random) -> bytes:
    """Other entries: a command changed, one moved, repeated or left out, another time, another sequence."""
    values = unframed(data)
    for _ in range(random.choice((1, 2, 4, 8))):
        if not values:
            return data
        at = random.randrange(len(values))
        kind = random.randrange(7)
        if kind <= 3:
            values[at] = _changed(values[at], random)
        elif kind == 4:
            values.insert(random.randrange(len(values) + 1), values[at])
        elif kind == 5 and len(values) > 1:
            del values[at]
        else:
            random.shuffle(values)
    return framed(values[:64])


def _changed(value: bytes, random: Random) -> bytes:
    try:
        entry = decode_entry(value)
    except Exception:  # it was spoiled before
        return value
    if isinstance(entry, Command | Own) and entry.command[:1] and entry.command[0] in KINDS and random.random() < 0.8:
        number = entry.command[0]
        command = encoded_changed(entry.command[1:], KINDS[number], random, KNOWN)
        return encode_entry(entry._replace(command=command_for(number, command)))
    if isinstance(entry, Command):
        sequence = random.choice((0, 1, entry.sequence + 1, 1 << 40))
        session = random.choice((SESSION, SESSION, 0, 99))
        return encode_entry(entry._replace(session=session, sequence=sequence, settled=random.choice((0, sequence))))
    if isinstance(entry, Own | Open):
        return encode_entry(entry._replace(now_ms=random.choice((0, NOW_MS + 30, NOW_MS + 700_000, (1 << 64) - 1))))
    return mutated(value, random)


TARGETS = (Target("journal", seeds, run, None, (change_entries,), plain_share=0.1, peak_bytes_max=8 * MIB),)
