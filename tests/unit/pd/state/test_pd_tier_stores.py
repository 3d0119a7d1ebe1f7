"""The tier gets further stores: objects keep theirs, later ones go to the new one."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed
from rangelog_core.tier_stores import STORES_MAX, parse_tier, store_of_key, store_of_object
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.tier_stores import tier_url
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_state_pb2, tier_pb2
from tests.unit.pd.state.test_pd_repacks import Repacks

FIRST = "file:///first"


@pytest.fixture
def tiered(pd: Any) -> Repacks:
    """Five sealed ranges, each with an object in the first store."""
    return Repacks(pd)


def set_tier(pd: Any, url: str, *, moved: bool = False, request_id: str = "") -> None:
    """Name another store."""
    request = tier_pb2.SetTierRequest(url=url, moved=moved)
    pd.do(tier_pb2.SetTierResponse, request_id, set_tier=request)


def store_of(pd: Any, found: common_pb2.Object) -> str:
    """Where the tier's URL says that an object is."""
    return store_of_key(parse_tier(tier_url(pd.state, FIRST)), found.key).url


def next_range(tiered: Repacks) -> common_pb2.Object:
    """Seal the open range and begin its upload."""
    pd, of = tiered.pd, tiered.pd.state.ranges.of(tiered.stream_id).last()
    pd.seal(tiered.stream_id, of.index, 1, of.start_offset + 10, "rs1", "rs2", "rs3")
    prepared: common_pb2.Object = pd.prepare(tiered.stream_id, of.index, of.start_offset, of.start_offset + 10, "rs1")
    return prepared


def test_without_a_change_the_setting_says_where_objects_are(tiered: Repacks) -> None:
    """Whatever it is, as earlier programs had it; without one there is no tier."""
    assert tier_url(tiered.pd.state, FIRST) == FIRST and tier_url(tiered.pd.state, "") == ""


def test_objects_keep_their_store(tiered: Repacks) -> None:
    """Committed and prepared ones stay where they are; later ones and repacks go to the new store, whoever reads the URL."""
    pd = tiered.pd
    before = next_range(tiered)
    set_tier(pd, "file:///second")
    made = pd.commit(before)
    after = pd.commit(next_range(tiered))
    packed = tiered.repack(0, 20)
    old = [each for each in pd.state.objects.values() if each.object_id <= before.object_id]
    assert {store_of(pd, each) for each in (*old, made)} == {FIRST}
    assert {store_of(pd, each) for each in (after, packed)} == {"file:///second"}
    (number,) = pd.state.tier_stores
    assert (before.tier_id, after.tier_id, packed.tier_id) == (0, number, number)
    assert before.object_id < number < after.object_id
    pd.reload()
    assert {store_of(pd, each) for each in (after, packed)} == {"file:///second"}


def test_each_change_has_a_number_that_no_object_and_no_other_change_has(tiered: Repacks) -> None:
    """Otherwise a server that has not heard of the second one would not find that out."""
    pd = tiered.pd
    for url in ("file:///b", "file:///c"):
        set_tier(pd, url)
    first, second = sorted(pd.state.tier_stores)
    prepared = next_range(tiered)
    assert first < second < prepared.object_id and prepared.tier_id == second
    assert store_of_object(parse_tier(tier_url(pd.state, FIRST)), first).url == "file:///b"
    set_tier(pd, "file:///c")
    assert len(pd.state.tier_stores) == 2, "it is there already"


def test_moved_objects_are_in_the_new_store_alone(tiered: Repacks) -> None:
    """The former ones are forgotten, that of the setting as well; later changes follow it."""
    pd = tiered.pd
    set_tier(pd, "file:///b")
    before = next_range(tiered)
    set_tier(pd, "file:///all", moved=True)
    assert [each.url for each in parse_tier(tier_url(pd.state, FIRST))] == ["file:///all"]
    assert {store_of(pd, each) for each in (*pd.state.objects.values(), before)} == {"file:///all"}
    assert next_range(tiered).tier_id > before.tier_id
    set_tier(pd, "file:///d")
    pd.reload()
    assert [each.url for each in parse_tier(tier_url(pd.state, FIRST))] == ["file:///all", "file:///d"]


def test_a_tier_that_begins_with_a_change(pd: Any) -> None:
    """A cluster without a setting gets its tier that way."""
    set_tier(pd, "file:///a")
    assert [each.url for each in parse_tier(tier_url(pd.state, ""))] == ["file:///a"]


def test_stores_are_not_too_many_and_their_urls_are_checked(pd: Any) -> None:
    """A URL that would not be found in the text again, and a list without end."""
    with pytest.raises(InvalidArgument):
        set_tier(pd, "file:///a b")
    for number in range(STORES_MAX - 1):
        set_tier(pd, f"file:///{number}")
    parse_tier(tier_url(pd.state, FIRST))
    with pytest.raises(PreconditionFailed, match="--moved"):
        set_tier(pd, "file:///last")
    set_tier(pd, "file:///last", moved=True)


def test_a_repeat_changes_nothing(pd: Any) -> None:
    """A retry carries the id of its first try."""
    for _ in range(2):
        set_tier(pd, "file:///a", moved=True, request_id="r")
    assert len(pd.state.tier_stores) == 1 and pd.state.next_object_id == 2


def test_a_snapshot_with_a_store_that_cannot_be_is_refused(pd: Any) -> None:
    """Before anything is changed."""
    set_tier(pd, "file:///a")
    for row in (tier_pb2.TierStore(url="file:///a"), tier_pb2.TierStore(first_object_id=5)):
        pd.state.tier_stores.put(7, row)
        with pytest.raises(Corruption, match="store of the tier"):
            Machine().restore(pd.machine.snapshot())


def test_earlier_members_are_not_sent_the_command() -> None:
    """It needs the level of operations."""
    assert needed_level(pd_state_pb2.Command(set_tier=tier_pb2.SetTierRequest(url="file:///a"))) == LEVEL_OPERATIONS
