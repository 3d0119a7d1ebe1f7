"""Many seals in one call: what became of each is known under its own request id, whichever way it went."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, NotLeader, OutcomeUnknown, RangelogError
from rangelog_pd.handlers import batches, ranges
from rangelog_proto.v1 import pd_pb2 as pb


def of_two(request_id: str = "q") -> pb.SealRangesRequest:
    """Both ranges are empty: the state forgets them once the next ones are there."""
    seals = [pb.SealRangeRequest(stream_id=number, epoch=1, create_next=True) for number in (1, 2)]
    return pb.SealRangesRequest(request_id=request_id, seals=seals)


async def two_ranges(api: Any) -> None:
    """Streams 1 and 2, each with an open range."""
    await api.register("rs1", "rs2", "rs3", "rs4")
    for number in (1, 2):
        await api.create(f"s{number}", f"c{number}")
        await ranges.open_writer(api.driver, pb.OpenWriterRequest(request_id=f"o{number}", name=f"s{number}"))
        request = pb.CreateRangeRequest(request_id=f"r{number}", stream_id=number, epoch=1)
        await ranges.create_range(api.driver, request)


def lose_answers(api: Any, *errors: RangelogError | None) -> None:
    """The next proposals are applied, and these errors are what their proposers get."""
    propose, waiting = api.consensus.propose, list(errors)

    async def applied_all_the_same(command: bytes, *, timeout_s: float) -> bytes:
        result: bytes = await propose(command, timeout_s=timeout_s)
        error = waiting.pop(0) if waiting else None
        if error is not None:
            raise error
        return result

    api.consensus.propose = applied_all_the_same


@pytest.mark.parametrize("level", [1, 2])
async def test_seals_whose_answer_was_lost_are_repeated_as_they_were(make_api: Any, level: int) -> None:
    """An item without an answer is not answered for; the repeat finds what was done."""
    api = make_api()
    await two_ranges(api)
    if level == 2:
        await api.driver.reconcile()
    lose_answers(api, NotLeader("lost"), OutcomeUnknown("lost"))
    for _ in range(level):  # at level 1 both commands are of one call
        with pytest.raises((NotLeader, OutcomeUnknown)):
            await batches.seal_ranges(api.driver, of_two())
    answered = await batches.seal_ranges(api.driver, of_two())
    assert [each.error.code for each in answered.results] == ["", ""]
    assert [each.response.next_range.index for each in answered.results] == [1, 1]
    assert [api.machine.state.streams[number].range_count for number in (1, 2)] == [2, 2]


async def test_seals_are_found_again_when_the_cluster_version_rose_in_between(make_api: Any) -> None:
    """They went one by one first, and then together."""
    api = make_api()
    await two_ranges(api)
    first = await batches.seal_ranges(api.driver, of_two())
    await api.driver.reconcile()
    assert api.driver.knows("seal_ranges")
    again = await batches.seal_ranges(api.driver, of_two())
    assert again == first
    assert [each.response.next_range.index for each in again.results] == [1, 1]


async def test_seals_are_found_again_when_they_are_divided_otherwise(
    make_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many items one command takes depends on the servers that were chosen."""
    api = make_api()
    await two_ranges(api)
    await api.driver.reconcile()
    first = await batches.seal_ranges(api.driver, of_two())
    monkeypatch.setattr(batches, "COMMAND_ITEMS_BYTES_MAX", 1)
    assert await batches.seal_ranges(api.driver, of_two()) == first


@pytest.mark.parametrize("request_id", ["", "q" * 97])
async def test_a_call_without_a_usable_request_id_is_refused(make_api: Any, request_id: str) -> None:
    """Nothing is done: a repeat could not be told from a new call."""
    api = make_api()
    await two_ranges(api)
    with pytest.raises(InvalidArgument, match="request id"):
        await batches.seal_ranges(api.driver, of_two(request_id))
    assert [api.machine.state.streams[number].range_count for number in (1, 2)] == [1, 1]
