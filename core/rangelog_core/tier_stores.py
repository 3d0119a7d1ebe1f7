"""The object stores of a tier as one text, and which of them has an object.

    "s3://old/logs"                        one store
    "s3://old/logs 1000=s3://new/logs"     objects from id 1000 on are in the second, all others in the first

What holds: object ids rise, and an object's key has its id, so a key says in which store the object is. Other files
(manifests, probes) are in the last store. A text with a single URL means the same to programs that know of one only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rangelog_core.errors import ConfigInvalid, InvalidArgument, Unavailable
from rangelog_core.object_keys import object_of_key

URL_LENGTH_MAX = 1_000
STORES_MAX = 32
_ID_MAX = (1 << 63) - 1
_BORDER = re.compile(r" (?=[0-9]{1,19}=[a-z0-9]+:)")
_NUMBERED = re.compile(r"([0-9]{1,19})=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TierStore:
    """One object store of a tier: it has the objects from this id on, up to the first one of the next store."""

    first_object_id: int
    url: str


def parse_tier(text: str) -> tuple[TierStore, ...]:
    """Return the stores in a tier URL, the oldest first; there is at least one. Raises ConfigInvalid.

    >>> parse_tier("file:///a 7=file:///b")
    (TierStore(first_object_id=0, url='file:///a'), TierStore(first_object_id=7, url='file:///b'))
    """
    found: list[TierStore] = []
    for part in _BORDER.split(text):
        numbered = _NUMBERED.fullmatch(part)
        first, url = (int(numbered[1]), numbered[2]) if numbered else (0, part)
        if (found and first <= found[-1].first_object_id) or first > _ID_MAX or len(found) == STORES_MAX:
            raise ConfigInvalid("bad tier URL: the stores of a tier have rising numbers: URL, or URL 1000=URL")
        found.append(TierStore(first, url))
    return tuple(found)


def tier_text(stores: Sequence[TierStore]) -> str:
    """Return the tier URL of these stores.

    >>> tier_text([TierStore(0, "file:///a"), TierStore(7, "file:///b")])
    'file:///a 7=file:///b'
    """
    return " ".join(f"{each.first_object_id}={each.url}" if each.first_object_id else each.url for each in stores)


def store_of_key(stores: Sequence[TierStore], key: str) -> TierStore:
    """Return the store that has the object with this key; the last one for what is no object."""
    object_id = object_of_key(key)
    return stores[-1] if object_id is None else store_of_object(stores, object_id)


def store_of_object(stores: Sequence[TierStore], object_id: int) -> TierStore:
    """Return the store that has an object."""
    at = bisect_right(stores, object_id, key=lambda each: each.first_object_id)
    return stores[max(0, at - 1)]


def was_changed(text: str) -> bool:
    """Whether a cluster's tier URL was changed since its first one: then no other URL may stand for it."""
    return len(stores := parse_tier(text)) > 1 or bool(stores[0].first_object_id)


def check_has_store(text: str, tier_id: int) -> None:
    """Raise Unavailable unless a tier URL has the store that a prepared object is to go to, by `Object.tier_id`.

    Stored by an older URL the object would be where no reader looks.
    """
    if tier_id > parse_tier(text)[-1].first_object_id:
        raise Unavailable("the tier was changed: open it by its present URL, and try again")


def check_url(url: str) -> str:
    """Return a URL that one store of a tier may have. Raises InvalidArgument."""
    if not url or len(url) > URL_LENGTH_MAX or not url.isprintable() or " " in url or _NUMBERED.fullmatch(url):
        raise InvalidArgument(
            f"a tier's URL has up to {URL_LENGTH_MAX:,} printable characters without spaces: write %20 for a space"
        )
    return url
