"""Cursors in the state machine: where they may be set, that late and repeated sets do no harm, and what a trim may pass."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    OffsetOutOfRange,
    OffsetTrimmed,
    PreconditionFailed,
    RangelogError,
    StreamNotFound,
    error_from_code,
)
from rangelog_core.limits import CURSOR_METADATA_BYTES_MAX, CURSORS_PER_STREAM_MAX
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.restored import leave_gap
from rangelog_pd.state.versions import LEVEL_OPERATIONS, LEVEL_REPACKS
from rangelog_proto.v1 import common_pb2, cursor_pb2, pd_pb2, pd_state_pb2

KEEP = common_pb2.CURSOR_RETENTION_KEEP
TRIM = common_pb2.CURSOR_RETENTION_TRIM
BOTH = common_pb2.CURSOR_RETENTION_KEEP_AND_TRIM


def set_all(pd: Any, *sets: cursor_pb2.CursorSet, request_id: str = "r") -> list[cursor_pb2.Cursor | RangelogError]:
    """One command; a row or an error for each."""
    request = cursor_pb2.SetCursorsRequest(request_id=request_id, sets=sets)
    answers: list[cursor_pb2.Cursor | RangelogError] = []
    for each in pd.do(cursor_pb2.SetCursorsResponse, set_cursors=request).results:
        if each.error.code:
            offset = each.error.offset if each.error.has_offset else None
            answers.append(error_from_code(each.error.code, each.error.message, offset=offset))
        else:
            answers.append(each.cursor)
    return answers


def put(
    pd: Any,
    stream_id: int,
    offset: int,
    name: str = "billing",
    *,
    expected: int | None = None,
    metadata: str = "",
    request_id: str = "r",
) -> cursor_pb2.Cursor:
    """Set one cursor, or raise its error."""
    wanted = cursor_pb2.CursorSet(
        stream_id=stream_id, name=name, offset=offset, expected_version=expected, metadata=metadata
    )
    (answer,) = set_all(pd, wanted, request_id=request_id)
    if isinstance(answer, RangelogError):
        raise answer
    return answer


def delete(pd: Any, stream_id: int, name: str = "billing", version: int = 0, request_id: str = "") -> cursor_pb2.Cursor:
    request = cursor_pb2.DeleteCursorRequest(stream_id=stream_id, name=name, expected_version=version)
    return pd.do(cursor_pb2.DeleteCursorResponse, request_id, delete_cursor=request).cursor


def retain(pd: Any, stream_id: int, offset: int, *, passed: bool = False, expiring: Any = ()) -> int:
    """A trim by retention; returns the trim offset."""
    command = pd_state_pb2.RetainStream(
        stream_id=stream_id,
        trim_offset=offset,
        passed=passed,
        expiring=[pd_state_pb2.ExpiringCursor(name=each.name, set_ms=each.set_ms) for each in expiring],
    )
    return int(pd.do(pd_pb2.TrimStreamResponse, retain_stream=command).stream.trim_offset)


def ranges_of_ten(pd: Any, stream_id: int, count: int, *, then_open: bool = True) -> None:
    """Sealed ranges of ten records each, and an open one."""
    pd.open_writer(pd.state.streams[stream_id].name)
    pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    for index in range(count):
        more = then_open or index < count - 1
        pd.seal(stream_id, index, 1, 10 * (index + 1), *(("rs1", "rs2", "rs3") if more else ()))


@pytest.fixture
def kept(pd: Any) -> int:
    """A stream that keeps and trims for its cursors, with three sealed ranges of ten records and an open one."""
    stream_id = int(pd.create_stream(cursor_retention=BOTH).stream_id)
    ranges_of_ten(pd, stream_id, 3)
    return stream_id


# ---- positions


def test_a_cursor_moves_forward_and_a_late_set_never_moves_it_back(pd: Any, kept: int) -> None:
    """What a consumer sent before a later set of its own, or of its successor, changes nothing when it arrives."""
    first = put(pd, kept, 5, metadata="a")
    second = put(pd, kept, 12, metadata="b")
    assert second.version > first.version
    pd.pass_ms(1_000)
    assert put(pd, kept, 5, metadata="a") == second, "late: neither its offset nor its date nor its metadata counts"
    assert pd.state.cursors.rows[kept, "billing"] == second


def test_the_same_position_again_is_a_sign_of_life_only(pd: Any, kept: int) -> None:
    """A consumer at the end commits the same offset: its date is new, its version is not."""
    first = put(pd, kept, 5)
    pd.pass_ms(1_000)
    again = put(pd, kept, 5)
    assert (again.version, again.offset) == (first.version, 5) and again.set_ms == first.set_ms + 1_000
    assert again.created_ms == first.created_ms


def test_a_set_that_expects_a_version_moves_anywhere_once(pd: Any, kept: int) -> None:
    """Also back; another set that expects the same version is refused, a repeat of the same request is not."""
    first = put(pd, kept, 20)
    moved = put(pd, kept, 3, expected=first.version, request_id="reset")
    assert moved.offset == 3 and moved.version > first.version
    assert put(pd, kept, 3, expected=first.version, request_id="reset") == moved, "its answer was lost"
    with pytest.raises(PreconditionFailed, match="was changed meanwhile"):
        put(pd, kept, 3, expected=first.version, request_id="another")
    later = put(pd, kept, 4)
    with pytest.raises(PreconditionFailed):
        put(pd, kept, 3, expected=first.version, request_id="reset")
    assert pd.state.cursors.rows[kept, "billing"] == later


def test_expecting_none_makes_a_cursor_once(pd: Any, kept: int) -> None:
    """Version 0 is that of a cursor that does not exist."""
    made = put(pd, kept, 5, expected=0, request_id="a")
    assert put(pd, kept, 5, expected=0, request_id="a") == made
    with pytest.raises(PreconditionFailed):
        put(pd, kept, 5, expected=0, request_id="b")


def test_a_version_is_not_given_again_after_a_deletion(pd: Any, kept: int) -> None:
    """So a reset that was meant for the former cursor does not move one of the same name."""
    first = put(pd, kept, 5)
    assert delete(pd, kept) == first
    assert not delete(pd, kept).name, "there is none any more"
    pd.reload()
    made = put(pd, kept, 7)
    assert made.version > first.version
    with pytest.raises(PreconditionFailed):
        put(pd, kept, 1, expected=first.version)
    with pytest.raises(PreconditionFailed):
        delete(pd, kept, version=first.version)
    assert delete(pd, kept, version=made.version) == made


def test_below_the_trim_offset_a_cursor_is_refused(pd: Any, kept: int) -> None:
    """Nothing is there to be read from it; the error has the first offset that is."""
    put(pd, kept, 5)
    pd.trim(20)
    with pytest.raises(OffsetTrimmed) as caught:
        put(pd, kept, 6)
    assert caught.value.offset == 20
    assert put(pd, kept, 20).offset == 20


def test_beyond_an_end_that_is_known_a_cursor_is_refused(pd: Any) -> None:
    """With an open range the replicas know the end; without one the placement driver does."""
    stream_id = int(pd.create_stream().stream_id)
    with pytest.raises(OffsetOutOfRange):
        put(pd, stream_id, 1)
    assert put(pd, stream_id, 0).offset == 0
    ranges_of_ten(pd, stream_id, 2, then_open=False)
    with pytest.raises(OffsetOutOfRange) as caught:
        put(pd, stream_id, 21)
    assert caught.value.offset == 20
    pd.create_range(stream_id, 1, 20, "rs1", "rs2", "rs3")
    assert put(pd, stream_id, 21).offset == 21


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"stream_id": 99}, StreamNotFound),
        ({"name": "a/b"}, InvalidArgument),
        ({"name": ""}, InvalidArgument),
        ({"offset": 1 << 63}, OffsetOutOfRange),
        ({"metadata": "ü" * (CURSOR_METADATA_BYTES_MAX // 2 + 1)}, InvalidArgument),
    ],
)
def test_what_is_wrong_is_refused_and_the_items_beside_it_are_done(
    pd: Any, kept: int, change: dict[str, Any], error: type[RangelogError]
) -> None:
    """Each item of a batch has an answer of its own."""
    good = cursor_pb2.CursorSet(stream_id=kept, name="good", offset=4)
    bad = cursor_pb2.CursorSet(**({"stream_id": kept, "name": "bad", "offset": 4} | change))
    refused, done = set_all(pd, bad, good)
    assert isinstance(refused, error)
    assert isinstance(done, cursor_pb2.Cursor) and done.offset == 4
    assert list(pd.state.cursors.rows) == [(kept, "good")]


def test_the_number_of_cursors_is_bounded_per_stream(pd: Any, kept: int) -> None:
    """One more is refused, one that is there goes on."""
    for number in range(CURSORS_PER_STREAM_MAX):
        put(pd, kept, 1, f"c{number}")
    with pytest.raises(InvalidArgument, match="the limit"):
        put(pd, kept, 1, "one-more")
    assert put(pd, kept, 2, "c0").offset == 2
    delete(pd, kept, "c1")
    assert put(pd, kept, 1, "one-more").offset == 1


def test_the_stream_of_a_shard_has_no_cursors(pd: Any, topics: Any) -> None:
    """Groups have the positions there."""
    topic = topics.create("t")
    shard = topics.shard(topic.topic_id, 0)
    with pytest.raises(PreconditionFailed, match="belongs to a topic"):
        put(pd, shard.stream_id, 0)


def test_cursors_die_with_their_stream_and_a_namesake_has_none(pd: Any, kept: int) -> None:
    """A stream of the same name is another stream: it starts without cursors, and those of the former are refused."""
    put(pd, kept, 20)
    pd.delete_stream()
    other = int(pd.create_stream().stream_id)
    assert not pd.state.cursors.rows and not pd.state.cursors.of(other)
    with pytest.raises(StreamNotFound):
        put(pd, kept, 20)


# ---- snapshots and versions


def test_a_snapshot_has_the_cursors(pd: Any, kept: int) -> None:
    """Rows, versions and what is not dated yet, through two round trips."""
    put(pd, kept, 5, metadata="é")
    pd.provisional = True
    put(pd, kept, 7, "other", expected=0)
    rows = dict(pd.state.cursors.rows)
    assert rows[kept, "other"].set_ms == 0
    pd.reload()
    pd.reload()
    assert dict(pd.state.cursors.rows) == rows
    pd.provisional = False
    pd.pass_ms(10)
    put(pd, kept, 8)
    assert pd.state.cursors.rows[kept, "other"].set_ms == pd.wall_ms, "dated as soon as the time is confirmed"


def test_a_new_group_gives_no_version_that_the_lost_one_gave(pd: Any, kept: int) -> None:
    """Who expects a version of a state that is lost moves nothing."""
    saved = pd.machine.snapshot()
    lost = put(pd, kept, 5)
    pd.machine.restore(saved)
    leave_gap(pd.state)
    made = put(pd, kept, 7)
    assert made.version > lost.version + 1_000
    with pytest.raises(PreconditionFailed):
        put(pd, kept, 1, expected=lost.version)


@pytest.mark.parametrize("broken", [{"stream_id": 99}, {"version": 1 << 40}])
def test_a_snapshot_whose_cursors_do_not_fit_is_refused(pd: Any, kept: int, broken: dict[str, int]) -> None:
    """Of no stream, or of a version that was never given; the state stays as it is."""
    row = put(pd, kept, 5)
    good = pd.machine.snapshot()
    wrong = cursor_pb2.Cursor()
    wrong.CopyFrom(row)
    wrong.version, wrong.stream_id = broken.get("version", row.version), broken.get("stream_id", kept)
    pd.state.cursors.rows._rows[kept, "billing"] = wrong
    damaged = pd.machine.snapshot()
    pd.machine.restore(good)
    with pytest.raises(Corruption):
        pd.machine.restore(damaged)
    assert pd.state.cursors.rows[kept, "billing"] == row


def test_a_state_without_cursors_makes_a_snapshot_that_the_level_before_reads(pd: Any, stream: int) -> None:
    """No section and no field of the new kind is in it."""
    data = pd.machine.snapshot()
    section = pd_state_pb2.Section(kind=pd_state_pb2.SECTION_KIND_CURSORS, version=1).SerializeToString()
    assert section not in data
    before = Machine(LEVEL_REPACKS)
    before.restore(data)
    assert stream in before.state.streams


def test_commands_of_cursors_need_the_level_of_operations() -> None:
    """Members of the level before do not know them, nor the configuration."""
    for action in (
        {"set_cursors": cursor_pb2.SetCursorsRequest()},
        {"delete_cursor": cursor_pb2.DeleteCursorRequest()},
        {"retain_stream": pd_state_pb2.RetainStream()},
        {"create_stream": pd_pb2.CreateStreamRequest(config=common_pb2.StreamConfig(cursor_retention=KEEP))},
        {"update_stream": pd_pb2.UpdateStreamRequest(config=common_pb2.StreamConfig(cursor_expiry_ms=1))},
    ):
        assert needed_level(pd_state_pb2.Command(**action)) == LEVEL_OPERATIONS, action
    assert needed_level(pd_state_pb2.Command(create_stream=pd_pb2.CreateStreamRequest())) == 1


# ---- trims


def test_a_trim_that_was_proposed_before_a_cursor_was_set_does_not_pass_it(pd: Any, kept: int) -> None:
    """The leader saw no cursor; when its trim is applied there is one, in the middle of a range."""
    put(pd, kept, 15)
    assert retain(pd, kept, 30) == 10, "whole ranges below the cursor"
    assert retain(pd, kept, 30, passed=True) == 10


def test_what_no_cursor_has_passed_is_not_trimmed_as_passed(pd: Any, kept: int) -> None:
    """Without a live cursor nothing is passed."""
    assert retain(pd, kept, 30, passed=True) == 0
    assert retain(pd, kept, 30) == 30, "by age or size, no cursor keeps it"


def test_an_expired_cursor_keeps_nothing_until_it_is_set_again(pd: Any, kept: int) -> None:
    """It stays where it is, so that its consumer finds where it stood."""
    row = put(pd, kept, 5)
    assert retain(pd, kept, 20, expiring=[row]) == 20
    assert pd.state.cursors.rows[kept, "billing"].expired
    with pytest.raises(OffsetTrimmed):
        put(pd, kept, 5)
    alive = put(pd, kept, 22)
    assert not alive.expired
    assert retain(pd, kept, 30) == 20


def test_a_cursor_that_was_set_meanwhile_does_not_expire(pd: Any, kept: int) -> None:
    """The leader proposed its expiry by an older date."""
    row = put(pd, kept, 5)
    pd.pass_ms(1)
    put(pd, kept, 5)
    assert retain(pd, kept, 20, expiring=[row]) == 0
    assert not pd.state.cursors.rows[kept, "billing"].expired


def test_where_cursors_only_trim_age_and_size_pass_them(pd: Any) -> None:
    """And where they only keep, what they have passed stays."""
    trimming = int(pd.create_stream("t", cursor_retention=TRIM).stream_id)
    keeping = int(pd.create_stream("k", cursor_retention=KEEP).stream_id)
    for stream_id in (trimming, keeping):
        ranges_of_ten(pd, stream_id, 3)
        put(pd, stream_id, 15)
    assert retain(pd, trimming, 30, passed=True) == 10
    assert retain(pd, trimming, 30) == 30
    assert retain(pd, keeping, 30, passed=True) == 0
    assert retain(pd, keeping, 30) == 10


def test_a_trim_on_demand_passes_cursors(pd: Any, kept: int) -> None:
    """Who trims says what is to go."""
    put(pd, kept, 5)
    assert pd.trim(25).trim_offset == 25
