"""A page that is empty and says that there is more is not the end of a list, for whoever decides by the list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangelog._metadata import Metadata
from rangelog_core.errors import ProtocolViolation
from rangelog_core.net.manifest_calls import _committed
from rangelog_core.net.pages import goes_on, pages_by_token
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_server.agent.lost_range_recovery import _ranges_of
from rangelog_tier.scrub_sources import CommittedObjects
from tests.support.pd_calls import CallsByName


class Pd(CallsByName):
    """A placement driver that lists one object or range, and then nothing, and says each time that there is more."""

    def __init__(self) -> None:
        self.pages = 0

    async def list_objects(self, request: pd_pb2.ListObjectsRequest, timeout_s: float) -> pd_pb2.ListObjectsResponse:
        self.pages += 1
        objects = [common_pb2.Object(key="a", end_offset=10)] if self.pages == 1 else []
        return pd_pb2.ListObjectsResponse(objects=objects, more=True)

    async def list_ranges(self, request: pd_pb2.ListRangesRequest, timeout_s: float) -> pd_pb2.ListRangesResponse:
        self.pages += 1
        ranges = [common_pb2.Range(index=0)] if self.pages == 1 else []
        return pd_pb2.ListRangesResponse(ranges=ranges, more=True, stream=common_pb2.Stream(stream_id=1))


async def _of_a_scrub(pd: Any) -> None:
    objects = CommittedObjects(pd, 1, 1.0)
    while await objects.peek() is not None:
        await objects.take()


async def _of_a_manifest(pd: Any) -> None:
    await _committed(pd, 1.0, common_pb2.Stream(stream_id=1))


async def _of_a_reader(pd: Any) -> None:
    await Metadata.ranges(SimpleNamespace(pd=pd), "s", 0)  # type: ignore[arg-type]


async def _of_a_server(pd: Any) -> None:
    async for _ in _ranges_of(pd, SimpleNamespace(name="rs1", incarnation=1), 1):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("read", [_of_a_scrub, _of_a_manifest, _of_a_reader, _of_a_server])
async def test_a_list_that_breaks_off_is_an_error(read: Any) -> None:
    """A scrub would take what is missing in it for orphans, a manifest would lack objects, a reader ranges."""
    pd = Pd()
    with pytest.raises(ProtocolViolation, match="what was listed is not all"):
        await read(pd)
    assert pd.pages == 2


async def test_a_list_goes_on_by_its_tokens() -> None:
    """Each page is asked for behind the one before it, from the given token on; the page without a token is the last one."""
    asked: list[str] = []

    class Streams(CallsByName):
        async def list_streams(self, request: pd_pb2.ListStreamsRequest, timeout_s: float) -> Any:
            asked.append(request.page_token)
            row = common_pb2.Stream(name=request.page_token)
            return pd_pb2.ListStreamsResponse(streams=[row], next_page_token={"a": "b", "b": "c"}.get(row.name, ""))

    request = pd_pb2.ListStreamsRequest(page_token="a")
    pages = pages_by_token(Streams(), request, pd_pb2.ListStreamsResponse, 1.0)
    assert [each.name async for page in pages for each in page.streams] == asked == ["a", "b", "c"]


def test_a_list_ends_where_it_says_so() -> None:
    """Also with an empty page."""
    assert (goes_on(True, [1]), goes_on(False, [1]), goes_on(False, [])) == (True, False, False)
