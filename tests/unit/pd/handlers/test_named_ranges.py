"""The answer of an opening names the ranges before the last one: who takes a log over reads them without another call."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.handlers import batches, ranges, streams
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb


async def sealed_ranges(api: Any, count: int) -> None:
    """Stream 1 with so many sealed ranges of ten records, and an open one."""
    await api.register("rs1", "rs2", "rs3")
    await api.create()
    await api.open()
    await api.make_range()
    for number in range(count):
        await api.seal((number + 1) * 10, f"z{number}", range_index=number, create_next=True)


def spans(opened: pb.OpenWriterResponse) -> list[tuple[int, int]]:
    """The named ranges, which are sealed and have addresses."""
    assert all(each.state == common_pb2.RANGE_STATE_SEALED for each in opened.earlier_ranges)
    assert all(replica.data_address for each in opened.earlier_ranges for replica in each.replicas)
    return [(each.start_offset, each.end_offset) for each in opened.earlier_ranges]


async def test_the_earlier_ranges_are_named_in_order(make_api: Any) -> None:
    """Up to the last one, which is apart."""
    api = make_api()
    await sealed_ranges(api, 3)
    opened = await api.open("again")
    assert spans(opened) == [(0, 10), (10, 20), (20, 30)]
    assert opened.last_range.start_offset == 30
    assert opened.last_range.replicas[0].data_address


async def test_of_many_ranges_the_latest_are_named(make_api: Any) -> None:
    """So an answer is bounded however long the log is."""
    api = make_api()
    await sealed_ranges(api, ranges.EARLIER_RANGES_MAX + 3)
    assert spans(await api.open("again")) == [(10 * n, 10 * n + 10) for n in range(3, ranges.EARLIER_RANGES_MAX + 3)]


async def test_what_is_trimmed_is_not_named(make_api: Any) -> None:
    """A range of which records are left is."""
    api = make_api()
    await sealed_ranges(api, 3)
    await streams.trim_stream(api.driver, pb.TrimStreamRequest(request_id="t", name="s", trim_offset=15))
    assert spans(await api.open("again")) == [(10, 20), (20, 30)]


async def test_an_answer_that_was_lost_names_no_later_range(make_api: Any) -> None:
    """The repeat is answered from the state of now, in which a later writer has sealed and created."""
    api = make_api()
    await sealed_ranges(api, 2)
    first = await api.open("again")
    await api.open("later")
    await api.seal(30, "z-later", range_index=2, epoch=3, create_next=True)
    repeated = await api.open("again")
    assert spans(repeated) == spans(first) == [(0, 10), (10, 20)]


@pytest.mark.parametrize("level", [1, 2])
async def test_openings_of_many_name_the_ranges_of_each(make_api: Any, level: int) -> None:
    """Whether they go in one command or one by one; one that fails names none."""
    api = make_api()
    await sealed_ranges(api, 1)
    if level == 2:
        await api.driver.reconcile()
    writers = [pb.OpenWriterRequest(name=name) for name in ("s", "nobody")]
    answered = await batches.open_writers(api.driver, pb.OpenWritersRequest(request_id="q", writers=writers))
    assert spans(answered.results[0].response) == [(0, 10)]
    assert answered.results[1].error.code == "STREAM_NOT_FOUND"
