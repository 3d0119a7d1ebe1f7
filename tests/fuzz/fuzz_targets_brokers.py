"""A broker's port and what brokers keep: hostile frames to an owner's production core, and side logs that lie.

What holds for the port: every request has one answer, typed, or the connection is closed; what is taken is the next of its
producer, at offsets without a gap; the state survives a snapshot; what is staged comes back from the side log as it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from rangelog_broker.serving import connection as serving
from rangelog_broker.serving.connection import ProducerConnection, ProducerPort
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import ProducerTable, Standing
from rangelog_broker.shards.reply import SubmissionReply
from rangelog_broker.shards.side_entry import SideFold, encode_snapshot, encode_staged
from rangelog_broker.shards.staging import StagedBatch, Staging, TransactionKey, run_of
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch import BatchHeader, check_batch, encode_batch, restamp
from rangelog_core.batch_extension import (
    Producer,
    Submission,
    Tag,
    encode_extension,
    encode_producer,
    encode_submission,
)
from rangelog_core.errors import InternalError, NotOwner, OutOfOrder, ProducerFenced, Unavailable
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_proto.v1 import data_pb2
from tests.fuzz import fuzz_loop
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import mutated
from tests.fuzz.fuzz_targets_batches import batch_seeds, change_frame_header, repair_frames
from tests.fuzz.fuzz_targets_data_plane import RaisingLog, Wire, change_frames, feed, frames_of, request

HELLO = request(Opcode.HELLO, 1, protocol_version=1, server="rs1", incarnation=9)


def producers_batch(origin: Producer | Submission, *values: bytes) -> bytes:
    """A batch of a producer, or of a submission."""
    is_submitted = isinstance(origin, Submission)
    fields = {Tag.SUBMISSION: encode_submission(origin)} if is_submitted else {Tag.PRODUCER: encode_producer(origin)}
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=[5] * len(values),
        values=list(values),
        extension=encode_extension(fields),
    )


# ---- the port


class _Shards:
    """Shard 1/0, whose owner acks every second batch at once and the others at the end."""

    def __init__(self) -> None:
        self.owner = ShardOwner(ShardState.first({}), 0)
        self.waiting: list[tuple[int, Any, int]] = []
        self.taken = 0
        self.transactions = self
        self.staging = Staging()
        self.side_log: list[bytes] = []

    def changing(self, topic_id: int, shard_id: int) -> None:
        """See Shards."""

    def owned(self, topic_id: int, shard_id: int) -> Any:
        """See Shards."""
        if (topic_id, shard_id) != (1, 0):
            raise NotOwner("not here")
        return self

    def produce(
        self, header: BatchHeader, origin: Producer | Submission, data: bytes, reply: Any, request_id: int
    ) -> None:
        """As OwnedShard."""
        if isinstance(origin, Submission):
            reply = SubmissionReply(reply, self.owner.state.submissions, origin)
        found = self.owner.offer(origin, header.count)
        if isinstance(found, InFlight):
            self.waiting.append((found.offset, reply, request_id))
        elif isinstance(found, list):
            reply.placed(request_id, found)
        elif found.standing is Standing.NEXT:
            placed = restamp(data, stream_id=7, range_index=0, epoch=3, base_offset=found.offset)
            assert check_batch(placed).end_offset == found.end_offset
            self.waiting.append((found.offset, reply, request_id))
            self.taken += 1
            if self.taken % 2:
                self.confirm()
        elif found.standing is Standing.HELD:
            reply.acked(request_id, found.offset)
        elif found.standing is Standing.GAP:
            raise OutOfOrder("a gap")
        else:
            raise ProducerFenced("a later one", epoch=found.epoch)

    def stage(self, number: int, name: str, producer: Producer, data: bytes, reply: Any, request_id: int) -> None:
        """As TransactionalShard."""
        standing = self.staging.offer(producer)
        if standing is Standing.FENCED:
            raise ProducerFenced("a later one", epoch=producer.epoch)
        if standing is Standing.GAP:
            raise OutOfOrder("a gap")
        if standing is Standing.NEXT:
            self.staging.add(number, name, producer, data, len(self.side_log))
            self.staging.acked(TransactionKey(producer.producer_id, number), producer.sequence)
            self.side_log.append(encode_staged(number, name, producer, data))
        reply.acked(request_id, 0)

    def confirm(self) -> None:
        """Everything is acked."""
        self.owner.confirmed(self.owner.next_offset)
        waiting, self.waiting = self.waiting, []
        for offset, reply, request_id in waiting:
            reply.acked(request_id, offset)

    async def find_batch(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """See Shards."""
        await asyncio.sleep(0)
        if topic_id != 1:
            raise Unavailable("not now")
        found = self.owner.table.find(producer)
        return found.offset if found.standing is Standing.HELD else None

    async def find_staged(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """See Shards."""
        await asyncio.sleep(0)
        if topic_id != 1:
            raise Unavailable("not now")
        return 0 if self.staging.offer(producer) is Standing.HELD else None

    def check(self) -> None:
        """What is kept is what the fold of its log, or a snapshot, comes to."""
        owner = self.owner
        assert owner.confirm_offset == owner.next_offset and not owner._pending and not owner._in_flight
        twin = ShardState.restore(owner.state.snapshot())
        assert list(twin.snapshot()) == list(owner.state.snapshot())
        fold = SideFold()
        for record, value in enumerate(self.side_log):
            fold.feed(record, value)
        fold.staging.all_acked()
        assert fold.staging.size_bytes == self.staging.size_bytes
        assert fold.staging.transactions() == self.staging.transactions()
        for key, _ in self.staging.transactions():
            staged = self.staging.batches(key)
            assert fold.staging.batches(key) == staged
            state = ShardState.first({})
            for place, data in run_of(key, 0, staged, 0):
                assert check_batch(data).count and place.producer_id == key.producer_id
                state.note_merged(place)
            assert state.can_be_captured


class _Counting(ProducerConnection):
    """Counts the frames by their requests."""

    def __init__(self, port: ProducerPort) -> None:
        super().__init__(port)
        self.asked: Counter[int] = Counter()

    def _handle(self, frame: Frame) -> None:
        self.asked[frame.request_id] += 1
        super()._handle(frame)


def port_seeds() -> list[bytes]:
    """Producers in order, out of order and again, questions, greetings."""
    sent = [
        request(Opcode.PRODUCE, 2 + number, producers_batch(Producer(7, 0, number), b"a", b"b"), topic_id=1)
        for number in range(4)
    ]
    again = request(Opcode.PRODUCE, 9, producers_batch(Producer(7, 0, 1), b"a", b"b"), topic_id=1)
    later = request(Opcode.PRODUCE, 10, producers_batch(Producer(7, 1, 0), b"c"), topic_id=1)
    gap = request(Opcode.PRODUCE, 11, producers_batch(Producer(8, 0, 3), b"c"), topic_id=1)
    nobody = request(Opcode.PRODUCE, 12, batch_seeds()[5], topic_id=1)
    question = request(Opcode.FIND_BATCH, 13, topic_id=1, producer_id=7, sequence=1)
    staged = [
        request(Opcode.STAGE, 30 + number, producers_batch(Producer(3, 0, number), b"t"), topic_id=1,
                transactional_id="payments", number=1 + number // 2)
        for number in range(4)
    ]  # fmt: skip
    name = bytes(range(16))
    submitted = [
        request(Opcode.PRODUCE, 50 + number, producers_batch(Submission(name, content, runs), b"s", b"s"), topic_id=1)
        for number, (content, runs) in enumerate(
            [(1, ((0, 2),)), (1, ((0, 1), (4, 1))), (1, ((4, 1), (6, 1))), (1, ((8, 2),)), (2, ((0, 2),))]
        )
    ]
    was_staged = request(Opcode.FIND_BATCH, 40, topic_id=1, producer_id=3, sequence=1, staged=True)
    return [
        HELLO + b"".join([*staged, was_staged, staged[1], sent[0]]),
        HELLO + b"".join([*sent, again, later, gap, question]),
        HELLO + nobody + again + question + sent[0] + request(Opcode.FIND_BATCH, 14, topic_id=2),
        HELLO + sent[0] + sent[0] + request(Opcode.PRODUCE, 20, producers_batch(Producer(7, 0, 1), b"x"), topic_id=4),
        request(Opcode.HELLO, 1, protocol_version=1, server="rs1", token="t", client="c" * 300) + sent[0],
        sent[0] + HELLO,
        HELLO + b"".join([*submitted, sent[0], submitted[0], sent[1]]),
    ]


def run_port(data: bytes) -> bool:
    """See the module."""
    shards, wire, log = _Shards(), Wire(), RaisingLog()
    production, serving._log = serving._log, log  # type: ignore[assignment]
    try:
        answered = fuzz_loop.run(_serve(data, shards, wire))
    finally:
        serving._log = production
    if log.defect is not None:
        raise log.defect
    replies = frames_of(bytes(wire.sent))
    codes = [data_pb2.Error.FromString(each.message).code for each in replies if each.opcode is Opcode.ERROR]
    assert InternalError.code not in codes
    shards.check()
    return answered


async def _serve(data: bytes, shards: _Shards, wire: Wire) -> bool:
    port = ProducerPort("rs1", 9, None, shards, asyncio.get_running_loop())
    connection = _Counting(port)
    connection.connection_made(wire)
    feed(connection, data)
    shards.confirm()
    while port.batches._tasks:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked = connection.asked
    closed = connection._closed
    assert connection._unanswered == {} and connection._unanswered_bytes == 0, "a request has no answer"
    connection.close()
    connection.connection_lost(None)
    sent = frames_of(bytes(wire.sent))
    answers = Counter(frame.request_id for frame in sent)
    for number in asked.keys() | answers.keys():
        few, same = answers[number] <= asked[number], answers[number] == asked[number]
        assert not number or (few if closed else same), f"answers to request {number}"
    return any(frame.opcode in (Opcode.PRODUCE_REPLY, Opcode.FIND_BATCH_REPLY) for frame in sent)


def change_producer(data: bytes, random: Random) -> bytes:
    """Another producer, epoch or sequence in one of the batches."""
    found = frames_of(data)
    places = [at for at, frame in enumerate(found) if frame.opcode in (Opcode.PRODUCE, Opcode.STAGE)]
    if not places:
        return data
    edge = (0, 1, 2, 5, (1 << 31), (1 << 32) - 1)
    producer = Producer(random.choice((*edge, (1 << 64) - 1)), random.choice(edge), random.choice(edge))
    payload = producers_batch(producer, *[b"v"] * random.choice((1, 2, 300)))
    at = random.choice(places)
    found[at] = found[at]._replace(payload=payload)
    return b"".join(encode_frame(*frame) for frame in found)


# ---- side logs


def _records_of(data: bytes) -> list[bytes]:
    """Cut an input into records, each behind its length."""
    records = []
    while len(data) > 1:
        size = int.from_bytes(data[:2], "little")
        records.append(data[2 : 2 + size])
        data = data[2 + size :]
    return records


def _joined(records: list[bytes]) -> bytes:
    return b"".join(len(each).to_bytes(2, "little") + each for each in records)


def side_log_seeds() -> list[bytes]:
    """Snapshots of several owners, one of them cut off, and staged batches between them."""
    state = ShardState(ProducerTable({9: 4}))
    owner = ShardOwner(state, 0)
    for sequence in range(7):
        for producer_id in (7, 8):
            owner.offer(Producer(producer_id, 1, sequence), 2)
    owner.confirmed(owner.next_offset)
    state.table.expire_idle(1_700_000_000_000, owner.next_offset)
    staging = Staging()
    staged = []
    for sequence in range(5):
        producer = Producer(3, 1, sequence)
        data = producers_batch(producer, b"t")
        staging.add(1 + sequence // 2, "payments", producer, data, sequence)
        staged.append(encode_staged(1 + sequence // 2, "payments", producer, data))
        place = run_of(TransactionKey(3, 1 + sequence), 2, [StagedBatch(sequence, data)], 0)[0][0]
        state.note_merged(place)
    pieces = [*state.snapshot(), *staging.snapshot()]
    first, second = encode_snapshot(1, 14, pieces), encode_snapshot(2, 28, pieces)
    return [
        _joined(first),
        _joined(first + second),
        _joined(second[:1] + first),
        _joined(encode_snapshot(1, 0, [])),
        _joined(staged + first),
        _joined(first[:1] + staged + first[1:]),
    ]


def run_side_log(data: bytes) -> bool:
    """What is found has as many pieces as it says, and restores to a state that takes batches, or is refused."""
    search = SideFold()
    for offset, value in enumerate(_records_of(data)):
        search.feed(offset, value)
    search.staging.all_acked()
    for key, name in search.staging.transactions():
        assert name and search.staging.batches(key)
        search.staging.drop(key)
    assert search.staging.size_bytes == 0 and search.staging.first_record is None
    if search.best is None:
        return False
    state = ShardState.restore(search.best.pieces)
    for producer_id, epoch in state.table.epochs().items():
        assert state.table.find(Producer(producer_id, epoch, 0)).standing is not Standing.FENCED or epoch < 0
    again = ShardState.restore(state.snapshot())
    assert list(again.table.snapshot()) == list(state.table.snapshot())
    assert list(again.merges.snapshot()) == list(state.merges.snapshot())
    return True


def change_records(data: bytes, random: Random) -> bytes:
    """Some records changed, moved, repeated or left out."""
    records = _records_of(data)
    for _ in range(random.choice((1, 2))):
        if not records:
            return data
        at = random.randrange(len(records))
        kind = random.randrange(4)
        if kind == 0:
            records[at] = mutated(records[at], random)[: 1 << 12]
        elif kind == 1:
            records.insert(random.randrange(len(records) + 1), records[at])
        elif kind == 2:
            del records[at]
        else:
            random.shuffle(records)
    return _joined(records[:100])


TARGETS = (
    Target(
        "producer-port", port_seeds, run_port, repair_frames, (change_frames, change_producer, change_frame_header),
        plain_share=0.1, ci_inputs=75, peak_bytes_max=48 * MIB,
    ),
    Target("side-log", side_log_seeds, run_side_log, None, (change_records,), plain_share=0.3),
)  # fmt: skip
