"""Groups in order of names out of all journals, at the cost of what is taken."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog._consume import group_list
from rangelog._consume.group_list import PAGE_SIZE, groups_by_name
from rangelog_core.net.owner_calls import JOURNALS
from rangelog_proto.v1 import group_service_pb2 as pb

pytestmark = pytest.mark.virtual


class Journals:
    """Groups by journal; answers as a broker does, and counts the pages."""

    def __init__(self, names: list[str]) -> None:
        self.names: dict[int, list[str]] = {}
        for number, name in enumerate(names):
            self.names.setdefault(number * 7 % JOURNALS, []).append(name)
        self.pages = 0

    async def list_groups(
        self, journal: int, prefix: str, token: str, _: float, page_size: int
    ) -> pb.ListGroupsResponse:
        self.pages += 1
        found = [each for each in sorted(self.names.get(journal, ())) if each.startswith(prefix) and each > token]
        response = pb.ListGroupsResponse(next_page_token=found[page_size - 1] if len(found) > page_size else "")
        for each in islice(found, page_size):
            response.groups.add(group=each)
        return response


async def listed(journals: Any, prefix: str = "", after: str = "", limit: int | None = None) -> list[str]:
    found = []
    async for each in groups_by_name(journals, prefix, after):
        if len(found) == limit:
            break
        found.append(each.group)
    return found


NAMES = st.sets(st.text("abc", min_size=1, max_size=4), max_size=80)


@given(names=NAMES, prefix=st.text("abc", max_size=1), after=st.text("abc", max_size=2))
async def test_all_of_them_once_in_order(names: set[str], prefix: str, after: str) -> None:
    """Whatever journals they are in, however many pages that takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_list, "PAGE_SIZE", 2)
        journals = Journals(sorted(names, key=lambda each: each[::-1]))
        wanted = sorted(each for each in names if each.startswith(prefix) and each > after)
        assert await listed(journals, prefix, after) == wanted


async def test_a_few_cost_a_page_of_each_journal() -> None:
    """The first ones of many groups are there after one page of each journal; the whole list takes all pages."""
    names = [f"g{number:05}" for number in range(JOURNALS * PAGE_SIZE * 3)]
    journals = Journals(names)
    assert await listed(journals, limit=50) == names[:50] and journals.pages == JOURNALS
    assert await listed(journals) == names
