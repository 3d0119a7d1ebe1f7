"""Which stores a restore reads: those that the snapshot names, for one URL says nothing of objects that are elsewhere.

What holds: a store that the snapshot knows of is read, or named by the operator, or the restore is refused; its objects
are never taken for missing ones.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument
from rangelog_core.tier_stores import TierStore, parse_tier, tier_text, was_changed
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader
from rangelog_tier.opening import store_location
from rangelog_tier.restore.known import SavedRows


def tier_to_read(url: str, header: TierSnapshotHeader, rows: SavedRows) -> str:
    """Return the tier URL by which all objects are found. `url`: where the snapshot is; one with numbers counts as it is.

    Raises InvalidArgument where the snapshot names several stores and `url` is not the last of them, or where it does not
    say where the first one is.

    >>> tier_to_read("file:///b", TierSnapshotHeader(tier_url="file:///a 7=file:///b"), SavedRows())
    'file:///a 7=file:///b'
    """
    if was_changed(url):
        return url
    saved = parse_tier(header.tier_url) if header.tier_url else _by_rows(rows)
    if len(saved) <= 1:
        return url
    *former, last = saved
    if not all(each.url for each in former):
        raise InvalidArgument(
            f"the tier has {len(saved)} stores, and the snapshot does not name the one with the objects below "
            f"{saved[1].first_object_id}: pass all of them, --from 'URL {tier_text(saved[1:])}'"
        )
    if store_location(last.url) != store_location(url):
        raise InvalidArgument(
            f"the tier has {len(saved)} stores, and {store_location(url)} is not the last of them: pass all of them, each "
            f"where it is now, --from '{tier_text(saved)}'; where all objects were copied to one store, --from '1=URL'"
        )
    return tier_text([*former, TierStore(last.first_object_id, url)])  # as it is reached from here


def same_tier(one: str, other: str) -> bool:
    """Whether two tier URLs name the same stores for the same objects. Raises ConfigInvalid."""
    return _places(one) == _places(other)


def _places(url: str) -> list[tuple[int, str]]:
    stores = parse_tier(url)
    if len(stores) == 1:
        return [(0, store_location(stores[0].url))]
    return [(each.first_object_id, store_location(each.url)) for each in stores]


def _by_rows(rows: SavedRows) -> list[TierStore]:
    """Return the stores as a snapshot of an earlier program has them: the first one, a setting, is not in it."""
    stores = [TierStore(each.first_object_id, each.url) for each in rows.tier_stores]
    return stores if not stores or rows.tier_stores[0].moved else [TierStore(0, ""), *stores]
