"""What the owner of a shard decides by, and what the next owner replays, is the same: also of batches that are dishonest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.producer_table import Found, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_broker.verbs.produce import check_native
from rangelog_core.batch import BatchHeader, encode_batch, extension_of
from rangelog_core.batch_extension import (
    MergedFrom,
    Producer,
    Submission,
    Tag,
    encode_extension,
    encode_merged,
    encode_producer,
    encode_submission,
)
from rangelog_core.errors import InvalidArgument, PreconditionFailed, ProtocolViolation

SMALL = st.integers(0, 2)
EDGE_RUN = (1 << 32) - 2
EDGES = SMALL | st.sampled_from([(1 << 60), (1 << 64) - 1])
PRODUCERS = st.builds(Producer, SMALL, SMALL, SMALL).map(encode_producer)
MERGED = st.builds(MergedFrom, SMALL, EDGES, EDGES, EDGES, SMALL).map(encode_merged)
OTHERS = st.dictionaries(
    st.sampled_from([Tag.CONTROL, Tag.KEY_RANGE, 3, 0x9000, 0xFFFF]), st.binary(max_size=9), max_size=2
)
RUNS = st.sampled_from([((0, 1),), ((0, 2),), ((1, 1),), ((0, 1), (2, 1)), ((0, 3),), ((1, 2),), ((EDGE_RUN, 1),)])
SUBMITTED = st.builds(Submission, st.sampled_from([bytes(16), b"\xff" * 16]), SMALL, RUNS).map(encode_submission)
FORGED = st.fixed_dictionaries(
    {}, optional={Tag.PRODUCER: PRODUCERS, Tag.TRANSACTION: MERGED, Tag.SUBMISSION: SUBMITTED | st.binary(max_size=40)}
)
FIELDS = (
    st.builds(lambda some, other: {**some, **other}, FORGED, OTHERS)
    | st.fixed_dictionaries({Tag.PRODUCER: PRODUCERS})
    | st.fixed_dictionaries({Tag.SUBMISSION: SUBMITTED})
)


def batch(fields: dict[int, bytes], records: int) -> bytes:
    values = [b"x"] * records
    return encode_batch(stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5] * records, values=values,
                        extension=encode_extension(fields))  # fmt: skip


@given(st.lists(st.tuples(FIELDS, st.integers(1, 3)), max_size=12))
def test_the_next_owner_has_the_state_of_this_one(offered: list[tuple[dict[int, bytes], int]]) -> None:
    """Whatever producers put into their batches: what is taken is replayed to the same table, and never refused."""
    owner = ShardOwner(ShardState.first({}), 0)
    log: list[tuple[BatchHeader, dict[int, bytes]]] = []
    for fields, records in offered:
        payload = batch(fields, records)
        try:
            header, origin = check_native(payload)
            found = owner.offer(origin, header.count)
        except (InvalidArgument, ProtocolViolation, PreconditionFailed):
            continue
        if isinstance(found, Found) and found.standing is Standing.NEXT:
            log.append((header._replace(base_offset=found.offset), extension_of(payload, header)))
            owner.confirmed(owner.next_offset)
    replayed = ShardState.first({})
    for each, kept in log:
        replayed.fold(each, kept, 0)
    assert list(replayed.snapshot()) == list(owner.state.snapshot())


def test_a_batch_of_two_origins_that_is_there_already_is_its_producers() -> None:
    """As its owner took it, before such batches were refused: the batch behind it is no part of a run."""
    state = ShardState.first({})
    header = check_native(batch({Tag.PRODUCER: encode_producer(Producer(7, 0, 0))}, 1))[0]
    forged = encode_merged(MergedFrom(1 << 60, 1, 0, 0, follow=3))
    for sequence, more in ((0, {Tag.TRANSACTION: forged}), (1, {})):
        fields = {Tag.PRODUCER: encode_producer(Producer(7, 0, sequence)), **more}
        state.fold(header._replace(base_offset=sequence), fields, 0)
    assert state.table.find(Producer(7, 0, 1)).standing is Standing.HELD
    assert state.can_be_captured
