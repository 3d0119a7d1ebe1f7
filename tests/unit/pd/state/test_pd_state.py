"""The placement driver's commands one by one: first wins, epoch-checked, idempotent, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rangelog_core.errors import (
    InvalidArgument,
    NoPlacement,
    OffsetOutOfRange,
    PreconditionFailed,
    RangeNotFound,
    StreamExists,
    StreamNotFound,
    WriterFenced,
)
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.support.pd_rows import level_1_snapshot

ABC = ("rs1", "rs2", "rs3")


def opened(pd: Any, **config: Any) -> common_pb2.Range:
    """A stream `s`, its writer at epoch 1, its first range on rs1 to rs3."""
    stream = pd.create_stream(**config)
    pd.open_writer()
    found: common_pb2.Range = pd.create_range(stream.stream_id, 1, 0, *ABC)
    return found


# ---- streams


def test_defaults_fill_what_is_unset(pd: Any) -> None:
    """A stream without configuration has 3 replicas, 2 acks, flushed appends and hot copies for ten minutes."""
    config = pd.create_stream().config
    assert (config.replicas, config.acks, config.hot_retention_ms) == (3, 2, 600_000)
    assert config.durability == common_pb2.DURABILITY_FLUSHED
    assert config.range_size_bytes_max == 512 * 1024 * 1024


def test_a_hot_retention_of_zero_is_not_unset(pd: Any) -> None:
    """Zero means that hot copies go at once; only an absent field takes the default."""
    assert pd.create_stream(hot_retention_ms=0).config.hot_retention_ms == 0


@pytest.mark.parametrize(
    "config",
    [
        {"replicas": 8},
        {"acks": 4},
        {"replicas": 1, "acks": 2},
        {"range_size_bytes_max": 1},
        {"range_size_bytes_max": 1 << 63},
        {"range_age_ms_max": 1 << 63},
        {"retention_ms": -1},
        {"retention_bytes": -1},
        {"hot_retention_ms": -2},
        {"durability": 9},
        {"compression": 9},
    ],
)
def test_a_configuration_out_of_bounds_is_refused(pd: Any, config: dict[str, int]) -> None:
    """Every field has bounds, and a refusal changes nothing."""
    before = pd.machine.snapshot()
    with pytest.raises(InvalidArgument):
        pd.create_stream(**config)
    assert pd.machine.snapshot() == before


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 201, "é"])
def test_a_bad_name_is_refused(pd: Any, name: str) -> None:
    """A name that could not be part of an object key is refused."""
    with pytest.raises(InvalidArgument):
        pd.create_stream(name)


def test_a_deleted_name_is_free_and_its_id_is_not(pd: Any) -> None:
    """After a deletion the same name makes another stream with another id."""
    first = pd.create_stream()
    with pytest.raises(StreamExists):
        pd.create_stream()
    pd.delete_stream()
    with pytest.raises(StreamNotFound):
        pd.open_writer()
    assert pd.create_stream().stream_id > first.stream_id


def test_deleting_a_stream_leaves_tombstones_of_its_objects(pd: Any) -> None:
    """Objects of a deleted stream stay as tombstones until they are gone from the store."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10)
    pd.tier(found.stream_id, 0, "rs1")
    pd.delete_stream()
    assert [each.state for each in pd.state.objects.values()] == [common_pb2.OBJECT_STATE_DELETED]
    assert not pd.state.hosted.hostings()


def test_update_takes_over_the_named_fields_only(pd: Any) -> None:
    """Fields that are not named stay; unknown ones are refused."""
    pd.create_stream(retention_ms=5)
    config = common_pb2.StreamConfig(hot_retention_ms=-1, retention_ms=9)
    request = pd_pb2.UpdateStreamRequest(name="s", config=config, fields=["hot_retention_ms"])
    changed = pd.do(pd_pb2.UpdateStreamResponse, update_stream=request).stream
    assert (changed.config.hot_retention_ms, changed.config.retention_ms) == (-1, 5)
    with pytest.raises(InvalidArgument, match="unknown field"):
        pd.do(
            pd_pb2.UpdateStreamResponse,
            update_stream=pd_pb2.UpdateStreamRequest(name="s", fields=["nonsense"]),
        )


def test_trim_ends_at_the_last_sealed_offset_and_never_goes_back(pd: Any) -> None:
    """Trimming beyond the sealed end says where that is; trimming less than before changes nothing."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10, *ABC)
    with pytest.raises(OffsetOutOfRange) as refused:
        pd.trim(11)
    assert refused.value.offset == 10
    assert pd.trim(10).trim_offset == 10
    assert pd.trim(3).trim_offset == 10
    assert list(pd.state.ranges.of(found.stream_id)) == [1]


def test_the_last_range_stays_until_there_is_another(pd: Any) -> None:
    """A stream that is trimmed whole keeps its last range, so that offsets go on; the next range lets it go."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10)
    pd.trim(10)
    assert pd.open_writer().last_range.end_offset == 10
    pd.create_range(found.stream_id, 2, 10, *ABC)
    assert list(pd.state.ranges.of(found.stream_id)) == [1]


# ---- epochs, ranges


def test_each_open_raises_the_epoch_and_a_repeat_does_not(pd: Any) -> None:
    """One request id gets one epoch, however often it comes."""
    pd.create_stream()
    first = pd.open_writer(request_id="a")
    assert pd.open_writer(request_id="b").stream.epoch == first.stream.epoch + 1
    assert pd.open_writer(request_id="a") == first
    assert pd.state.streams[1].epoch == 2


def test_a_leader_whose_clock_is_ahead_does_not_forget_answers(pd: Any) -> None:
    """What was answered a moment ago is answered the same, although the next leader's wall clock says two hours later."""
    pd.create_stream()
    first = pd.open_writer(request_id="a")
    pd.wall_ms += 2 * 3_600_000
    pd.create_stream("another", request_id="b")
    assert pd.open_writer(request_id="a") == first


def test_the_same_request_id_of_another_call_is_another_request(pd: Any) -> None:
    """Request ids are told apart by call: an answer of one call is never given to another."""
    pd.create_stream("s", request_id="same")
    assert pd.open_writer(request_id="same").stream.epoch == 1


def test_a_stale_writer_neither_creates_nor_seals(pd: Any) -> None:
    """A lower epoch is fenced and told by which; nothing changes."""
    found = opened(pd)
    pd.open_writer()
    before = pd.machine.snapshot()
    attempts: list[Callable[[], Any]] = [
        lambda: pd.seal(found.stream_id, 0, 1, 10),
        lambda: pd.create_range(found.stream_id, 1, 0, *ABC),
    ]
    for attempt in attempts:
        with pytest.raises(WriterFenced) as fenced:
            attempt()
        assert fenced.value.epoch == 2
    assert pd.machine.snapshot() == before


def test_an_unset_epoch_is_nobodys(pd: Any) -> None:
    """A stream that was never opened has no writer: a request without an epoch is refused, not taken for its."""
    stream = pd.create_stream()
    with pytest.raises(InvalidArgument, match="epoch"):
        pd.create_range(stream.stream_id, 0, 0, *ABC)
    found = pd.open_writer()
    pd.create_range(stream.stream_id, found.stream.epoch, 0, *ABC)
    with pytest.raises(InvalidArgument, match="epoch"):
        pd.seal(stream.stream_id, 0, 0, 5)


def test_the_first_seal_wins_and_every_later_one_is_told_its_end(pd: Any) -> None:
    """A second seal with another end gets the end in force, not an error and not its own."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10)
    pd.open_writer()
    assert pd.seal(found.stream_id, 0, 2, 12).range.end_offset == 10


def test_seal_and_create_next_are_one_step(pd: Any) -> None:
    """Without a place for the next range nothing is sealed."""
    found = opened(pd)
    before = pd.machine.snapshot()
    with pytest.raises(NoPlacement):
        pd.seal(found.stream_id, 0, 1, 10, create=True)
    assert pd.machine.snapshot() == before
    answer = pd.seal(found.stream_id, 0, 1, 10, *ABC)
    assert (
        answer.range.end_offset,
        answer.next_range.start_offset,
        answer.next_range.index,
    ) == (10, 10, 1)


def test_a_refused_seal_stays_refused(pd: Any) -> None:
    """A writer told "no place" goes on with its range, so a late copy of that very request must never seal it."""
    found = opened(pd)
    with pytest.raises(NoPlacement):
        pd.seal(found.stream_id, 0, 1, 10, create=True, request_id="a")
    with pytest.raises(NoPlacement):
        pd.seal(found.stream_id, 0, 1, 10, *ABC, request_id="a")
    assert pd.state.ranges.of(found.stream_id)[0].state == common_pb2.RANGE_STATE_OPEN


def test_a_range_refused_for_lack_of_servers_can_be_asked_for_again(pd: Any) -> None:
    """Creating a range is retried under one request id until servers are there: that refusal is not the last word."""
    stream = pd.create_stream()
    pd.open_writer()
    with pytest.raises(NoPlacement):
        pd.create_range(stream.stream_id, 1, 0, "rs1", request_id="a")
    assert pd.create_range(stream.stream_id, 1, 0, *ABC, request_id="a").index == 0


def test_a_seal_never_hands_out_a_range_of_another_epoch(pd: Any) -> None:
    """The next range belongs to who made it: a later writer that seals the one before does not get it as its own."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10, *ABC)
    pd.open_writer()
    answer = pd.seal(found.stream_id, 0, 2, 10, *ABC)
    assert answer.range.end_offset == 10
    assert not answer.HasField("next_range")


def test_no_range_follows_a_seal_that_lost(pd: Any) -> None:
    """Who meant another end is told the end in force; no range is created behind its back."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 10)
    assert not pd.seal(found.stream_id, 0, 1, 12, *ABC).HasField("next_range")
    assert pd.state.streams[found.stream_id].range_count == 1


def test_create_range_is_idempotent_for_epoch_and_start(pd: Any) -> None:
    """A repeat without its request id gets the range that the first made, also once that is sealed."""
    found = opened(pd)
    assert pd.create_range(found.stream_id, 1, 0, "rs2", "rs3", "rs4").replicas == found.replicas
    pd.seal(found.stream_id, 0, 1, 10, *ABC)
    assert pd.create_range(found.stream_id, 1, 0, *ABC).index == 0
    with pytest.raises(PreconditionFailed):
        pd.create_range(found.stream_id, 1, 5, *ABC)


def test_only_the_last_range_can_be_open(pd: Any) -> None:
    """While the predecessor's range is open, the new writer cannot create one."""
    found = opened(pd)
    pd.open_writer()
    with pytest.raises(PreconditionFailed, match="open"):
        pd.create_range(found.stream_id, 2, 0, *ABC)


@pytest.mark.parametrize("end", [4, 1 << 63])
def test_an_end_that_cannot_be_is_refused(pd: Any, end: int) -> None:
    """An end before the start or beyond all offsets is refused."""
    found = opened(pd)
    pd.seal(found.stream_id, 0, 1, 5, *ABC)
    with pytest.raises(InvalidArgument):
        pd.seal(found.stream_id, 1, 1, end)


def test_a_foreign_range_or_stream_is_not_found(pd: Any) -> None:
    """Sealing what does not exist says so."""
    found = opened(pd)
    with pytest.raises(RangeNotFound):
        pd.seal(found.stream_id, 7, 1, 5)
    with pytest.raises(StreamNotFound):
        pd.seal(99, 0, 1, 5)


@pytest.mark.parametrize("names", [("rs1",), ("rs1", "rs1", "rs2"), ("rs1", "rs2", "rs3", "rs4")])
def test_the_choice_of_servers_is_checked_where_it_is_applied(pd: Any, names: tuple[str, ...]) -> None:
    """Too few, the same one twice, or too many: no range."""
    stream = pd.create_stream()
    pd.open_writer()
    with pytest.raises(NoPlacement):
        pd.create_range(stream.stream_id, 1, 0, *names)


# ---- servers


def test_a_directory_that_was_rolled_back_is_refused(pd: Any) -> None:
    """Within one incarnation neither the count of starts nor the log's end goes back."""
    pd.register("rs9", incarnation=9, boot=4, log_end=100)
    with pytest.raises(PreconditionFailed, match="rolled back"):
        pd.register("rs9", incarnation=9, boot=3, log_end=100)
    with pytest.raises(PreconditionFailed, match="rolled back"):
        pd.register("rs9", incarnation=9, boot=5, log_end=99)
    mark = pd_state_pb2.MarkLogEnd(server="rs9", incarnation=9, log_end=200)
    pd.do(pd_pb2.ListTasksResponse, mark_log_end=mark)
    with pytest.raises(PreconditionFailed, match="rolled back"):
        pd.register("rs9", incarnation=9, boot=5, log_end=150)
    pd.register("rs9", incarnation=9, boot=5, log_end=200)


def test_an_incarnation_that_was_replaced_never_comes_back(pd: Any) -> None:
    """An old disk put back after its server started anew cannot speak for the replicas it once had."""
    pd.register("rs9", incarnation=9, boot=4, log_end=100)
    pd.register("rs9", incarnation=10)
    with pytest.raises(PreconditionFailed, match="replaced"):
        pd.register("rs9", incarnation=9, boot=5, log_end=100)
    assert pd.state.servers["rs9"].server.incarnation == 10


# ---- the machine


def test_a_snapshot_brings_back_everything(pd: Any) -> None:
    """After a restore the state, its indexes and the kept results are the same."""
    found = pd.seal(opened(pd).stream_id, 0, 1, 10).range
    pd.tier(found.stream_id, 0, "rs1")
    pd.open_writer(request_id="kept")
    data = pd.machine.snapshot()
    pd.machine.restore(data)
    pd.state.validate()
    assert pd.machine.snapshot() == data
    assert pd.open_writer(request_id="kept").stream.epoch == 2


def test_time_does_not_go_back(pd: Any) -> None:
    """A command of a leader whose time is behind is dated by the highest time of all, also after a restart."""
    found = opened(pd)
    latest = pd.wall_ms
    pd.wall_ms -= 86_400_000
    pd.reload()
    assert pd.seal(found.stream_id, 0, 1, 10).range.sealed_ms == latest
    assert pd.state.time_ms == latest


def test_a_snapshot_of_an_early_version_has_the_time_of_its_latest_date(pd: Any) -> None:
    """Without a time of its own, the state is as old as the last thing in it: no clock decides that."""
    found = opened(pd)
    pd.pass_ms(5_000)
    pd.seal(found.stream_id, 0, 1, 10)
    pd.tier(found.stream_id, 0, "rs1")
    latest = pd.wall_ms
    pd.delete_stream()
    early = level_1_snapshot(pd.machine)
    early.ClearField("time_ms")
    for each in early.objects:
        each.ClearField("deleted_ms")
    pd.machine.restore(early.SerializeToString())
    assert pd.state.time_ms == latest
    pd.pass_ms(5_000)
    pd.create_stream("next")
    assert [each.deleted_ms for each in pd.state.objects.values()] == [pd.wall_ms], "dated when it is seen"


def test_a_damaged_or_newer_snapshot_is_refused_before_anything_changes(
    pd: Any,
) -> None:
    """Corruption is said, and the state stays."""
    from rangelog_core.errors import Corruption

    before = pd.machine.snapshot()
    for data in (
        b"\xff\xff\xff",
        pd_state_pb2.StateSnapshot(version=99).SerializeToString(),
        b"",
    ):
        with pytest.raises(Corruption):
            pd.machine.restore(data)
    assert pd.machine.snapshot() == before
