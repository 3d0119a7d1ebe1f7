"""The calls on cursors: many sets in one log entry, repeats, pages, and requests that are not valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, StreamNotFound
from rangelog_core.limits import CURSOR_PAGE_SIZE_MAX, CURSOR_SETS_MAX
from rangelog_pd.handlers import cursors
from rangelog_proto.v1 import cursor_pb2 as pb


@pytest.fixture
async def leader(ready: Any) -> Any:
    """Every feature is enabled."""
    await ready.driver.reconcile()
    return ready


@pytest.fixture
def entries(leader: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the log entries that are proposed."""
    sizes: list[int] = []
    propose = leader.consensus.propose

    async def counted(command: bytes, **options: Any) -> bytes:
        sizes.append(len(command))
        return await propose(command, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(leader.consensus, "propose", counted)
    yield sizes


def requested(stream_id: int, *offsets: int, name: str = "c", request_id: str = "r") -> pb.SetCursorsRequest:
    sets = [
        pb.CursorSet(stream_id=stream_id, name=f"{name}{number}", offset=offset)
        for number, offset in enumerate(offsets)
    ]
    return pb.SetCursorsRequest(request_id=request_id, sets=sets)


async def test_many_sets_are_one_log_entry_and_leave_nothing_behind(leader: Any, entries: list[int]) -> None:
    """A consumer of hundreds of streams commits in one entry each second; no result is kept for its repeats."""
    ids = [(await leader.create(f"many{number}", request_id=f"m{number}")).stream_id for number in range(300)]
    entries.clear()
    sets = [pb.CursorSet(stream_id=each, name="billing", offset=0) for each in ids]
    before = len(leader.machine.snapshot())
    response = await cursors.set_cursors(leader.driver, pb.SetCursorsRequest(request_id="r", sets=sets))
    assert [each.cursor.stream_id for each in response.results] == ids
    assert len(entries) == 1
    once = len(leader.machine.snapshot())
    for number in range(20):
        await cursors.set_cursors(leader.driver, pb.SetCursorsRequest(request_id=f"r{number}", sets=sets))
    assert once > before and len(leader.machine.snapshot()) - once < 1_000


async def test_large_sets_are_divided_below_the_size_of_an_entry(leader: Any, entries: list[int]) -> None:
    """With metadata of the largest size."""
    made = await leader.create("s2", request_id="s2")
    request = requested(made.stream_id, *[0] * 150)
    for each in request.sets:
        each.metadata = "x" * 512
    entries.clear()
    response = await cursors.set_cursors(leader.driver, request)
    assert all(each.cursor.version for each in response.results) and len(response.results) == 150
    assert len(entries) > 1 and max(entries) < 48 * 1024


async def test_pages_have_every_cursor_once_in_order(leader: Any) -> None:
    """By name, from where the page before ended; also where that cursor is gone meanwhile."""
    made = await leader.create("s2", request_id="s2")
    await cursors.set_cursors(leader.driver, requested(made.stream_id, *[0] * (CURSOR_PAGE_SIZE_MAX + 5)))
    found: list[str] = []
    request = pb.ListCursorsRequest(stream_id=made.stream_id)
    while True:
        page = await cursors.list_cursors(leader.driver, request)
        found += [each.name for each in page.cursors]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
        gone = pb.DeleteCursorRequest(request_id="d", stream_id=made.stream_id, name=request.page_token)
        await cursors.delete_cursor(leader.driver, gone)
    assert found == sorted(f"c{number}" for number in range(CURSOR_PAGE_SIZE_MAX + 5))


async def test_a_cursor_is_got_by_its_streams_id(leader: Any) -> None:
    """One that does not exist is no error; a stream that does not is."""
    made = await leader.create("s2", request_id="s2")
    await cursors.set_cursors(leader.driver, requested(made.stream_id, 0))
    got = await cursors.get_cursor(leader.driver, pb.GetCursorRequest(stream_id=made.stream_id, name="c0"))
    assert got.cursor.name == "c0"
    none = await cursors.get_cursor(leader.driver, pb.GetCursorRequest(stream_id=made.stream_id, name="c1"))
    assert not none.HasField("cursor")
    for call in (
        cursors.get_cursor(leader.driver, pb.GetCursorRequest(stream_id=77, name="c0")),
        cursors.list_cursors(leader.driver, pb.ListCursorsRequest(stream_id=77)),
        cursors.delete_cursor(leader.driver, pb.DeleteCursorRequest(request_id="x", stream_id=77, name="c0")),
    ):
        with pytest.raises(StreamNotFound):
            await call


async def test_a_repeated_deletion_does_not_delete_a_later_cursor(leader: Any) -> None:
    """Its first answer was lost; meanwhile another consumer made a cursor of the same name."""
    made = await leader.create("s2", request_id="s2")
    await cursors.set_cursors(leader.driver, requested(made.stream_id, 0))
    request = pb.DeleteCursorRequest(request_id="d", stream_id=made.stream_id, name="c0")
    first = await cursors.delete_cursor(leader.driver, request)
    await cursors.set_cursors(leader.driver, requested(made.stream_id, 0))
    assert await cursors.delete_cursor(leader.driver, request) == first
    got = await cursors.get_cursor(leader.driver, pb.GetCursorRequest(stream_id=made.stream_id, name="c0"))
    assert got.cursor.version > first.cursor.version
    request.request_id, request.expected_version = "d2", first.cursor.version
    with pytest.raises(PreconditionFailed):
        await cursors.delete_cursor(leader.driver, request)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda stream_id: pb.SetCursorsRequest(request_id="r"),
        lambda stream_id: requested(stream_id, *[0] * (CURSOR_SETS_MAX + 1)),
        lambda stream_id: requested(stream_id, 0, request_id=""),
        lambda stream_id: requested(stream_id, 0, request_id="r" * 101),
        lambda stream_id: pb.SetCursorsRequest(request_id="r", sets=[*requested(stream_id, 0).sets] * 2),
    ],
)
async def test_a_request_that_is_not_valid_changes_nothing(leader: Any, request_of: Any) -> None:
    """None of its items is applied."""
    made = await leader.create("s2", request_id="s2")
    with pytest.raises(InvalidArgument):
        await cursors.set_cursors(leader.driver, request_of(made.stream_id))
    listed = await cursors.list_cursors(leader.driver, pb.ListCursorsRequest(stream_id=made.stream_id))
    assert not listed.cursors
