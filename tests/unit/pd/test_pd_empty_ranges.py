"""Empty sealed ranges: the next range takes their place, and nothing else is ever taken for empty."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed, RangeNotFound, WriterFenced
from rangelog_pd.state import results
from rangelog_pd.state.results import RESULTS_AGE_MS_MAX
from rangelog_pd.state.versions import LEVEL_EMPTY_RANGES
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

ABC = ("rs1", "rs2", "rs3")
BCD = ("rs2", "rs3", "rs4")


@pytest.fixture
def idle(pd: Any, stream: int) -> int:
    """A stream at the cluster version of this rule, range 0 sealed at 10, range 1 open and empty; its id."""
    raise_version(pd)
    pd.seal(stream, 0, 1, 10, *ABC)
    return stream


def raise_version(pd: Any) -> None:
    command = pd_state_pb2.SetClusterVersion(version=LEVEL_EMPTY_RANGES)
    pd.do(pd_pb2.CreateStreamResponse, set_cluster_version=command)


def spans(pd: Any, stream_id: int) -> list[tuple[int, int, int | None]]:
    """The index, the start, and the end (None: open) of each range."""
    return [
        (each.index, each.start_offset, each.end_offset if each.state == common_pb2.RANGE_STATE_SEALED else None)
        for each in pd.state.ranges.of(stream_id).values()
    ]


def open_again(pd: Any, stream_id: int, end: int) -> None:
    """Another writer: it seals the open range where its replicas end, and creates the next."""
    opened = pd.open_writer()
    pd.seal(stream_id, opened.last_range.index, opened.stream.epoch, end)
    pd.create_range(stream_id, opened.stream.epoch, end, *BCD)


def test_a_stream_that_is_opened_again_and_again_does_not_grow(pd: Any, idle: int) -> None:
    """The list stays as long as it is; each range has an index of its own."""
    for _ in range(50):
        open_again(pd, idle, 10)
    assert spans(pd, idle) == [(0, 0, 10), (51, 10, None)]
    assert pd.state.streams[idle].range_count == 52
    pd.reload()
    assert spans(pd, idle) == [(0, 0, 10), (51, 10, None)]
    pd.state.validate_indexes()


def test_a_range_with_a_record_stays(pd: Any, idle: int) -> None:
    """What was appended before the next writer came is in a range that is not empty."""
    open_again(pd, idle, 11)
    open_again(pd, idle, 11)
    assert spans(pd, idle) == [(0, 0, 10), (1, 10, 11), (3, 11, None)]


def test_an_open_range_is_never_replaced(pd: Any, idle: int) -> None:
    """That it is empty, only its replicas know: it has to be sealed first."""
    pd.open_writer()
    with pytest.raises(PreconditionFailed, match="still open"):
        pd.create_range(idle, 2, 10, *ABC)
    assert spans(pd, idle) == [(0, 0, 10), (1, 10, None)]


def test_a_deposed_writer_replaces_nothing(pd: Any, idle: int) -> None:
    """Only the holder of the stream's epoch changes the list."""
    pd.open_writer()
    pd.seal(idle, 1, 2, 10)
    pd.open_writer()
    with pytest.raises(WriterFenced):
        pd.create_range(idle, 2, 10, *ABC)
    assert spans(pd, idle) == [(0, 0, 10), (1, 10, 10)]


def test_a_writer_that_leaves_an_empty_range_leaves_nothing_behind(pd: Any, idle: int) -> None:
    """Its seal creates the next range in the same step; it is told both."""
    answer = pd.seal(idle, 1, 1, 10, *BCD)
    assert (answer.range.index, answer.range.end_offset, answer.next_range.index) == (1, 10, 2)
    assert spans(pd, idle) == [(0, 0, 10), (2, 10, None)]


@pytest.mark.parametrize("end", [10, 11])
def test_a_seal_that_is_repeated_when_its_result_is_forgotten_gets_the_next_range(
    pd: Any, idle: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placement drivers may be away longer than results are kept: the writer goes on where its seal has put it."""
    monkeypatch.setattr(results, "RESULTS_KEPT_MIN", 1)
    first = pd.seal(idle, 1, 1, end, *BCD, request_id="seal")
    for number in range(2):
        pd.create_stream(f"t{number}", request_id=f"t{number}")
    pd.pass_ms(RESULTS_AGE_MS_MAX + 1)
    pd.create_stream("later", request_id="later")
    again = pd.seal(idle, 1, 1, end, *ABC, request_id="seal")
    assert (again.range.index, again.range.end_offset) == (1, end)
    assert again.next_range == first.next_range


def test_a_seal_of_a_replaced_range_changes_nothing(pd: Any, idle: int) -> None:
    """At another end, or without a next range: there is no such range."""
    pd.seal(idle, 1, 1, 10, *BCD)
    before = spans(pd, idle)
    with pytest.raises(RangeNotFound):
        pd.seal(idle, 1, 1, 12, *BCD)
    with pytest.raises(RangeNotFound):
        pd.seal(idle, 1, 1, 10)
    pd.open_writer()
    with pytest.raises(RangeNotFound):
        pd.seal(idle, 1, 2, 10, *BCD)
    assert spans(pd, idle) == before


def test_members_of_an_earlier_level_keep_empty_ranges(pd: Any, stream: int) -> None:
    """The rule holds from a cluster version on, so members of two programs stay one state; then what is left over goes."""
    pd.seal(stream, 0, 1, 10, *ABC)
    for _ in range(3):
        open_again(pd, stream, 10)
    assert [index for index, _, _ in spans(pd, stream)] == [0, 1, 2, 3, 4]
    raise_version(pd)
    open_again(pd, stream, 10)
    assert spans(pd, stream) == [(0, 0, 10), (5, 10, None)]


def test_the_replicas_of_a_replaced_range_are_dropped(pd: Any, idle: int, make_report: Any) -> None:
    """Nobody reads it any more: a server that reports one is told to let go of it."""
    open_again(pd, idle, 10)
    pd.beat("rs1", make_report(idle, 0, "SEALED", end=10), make_report(idle, 1, "FENCED", end=10))
    directive = pd.directives("rs1")["drop_replica"]
    assert (directive.stream_id, directive.range_index) == (idle, 1)


def test_ranges_are_trimmed_over_a_gap(pd: Any, idle: int) -> None:
    """Ages, sizes and trims go by offsets: an index that is not there is passed over."""
    open_again(pd, idle, 10)
    open_again(pd, idle, 15)
    assert [index for index, _, _ in spans(pd, idle)] == [0, 2, 3]
    pd.trim(12)
    assert spans(pd, idle) == [(2, 10, 15), (3, 15, None)]
    pd.trim(15)
    assert spans(pd, idle) == [(3, 15, None)]
    pd.delete_stream()
    assert not pd.state.ranges
