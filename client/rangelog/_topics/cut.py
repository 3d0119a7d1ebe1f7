"""A cut: a position in a topic, one offset for each shard of a consistent set, and its text form for checkpoints.

The text form is JSON of one line, with the shards in order of id, so that equal cuts have equal texts:

    {"cut":1,"topic_id":7,"offsets":{"1":250,"2":0}}
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rangelog_core.errors import InvalidArgument, UnsupportedVersion
from rangelog_core.limits import OFFSET_MAX, TOPIC_SHARDS_MAX

VERSION = 1
_ID_MAX = (1 << 64) - 1
_TEXT_LENGTH_MAX = 64 * (TOPIC_SHARDS_MAX + 1)


@dataclass(frozen=True, slots=True)
class Cut:
    """A position in a topic: of each named shard all records below its offset lie before the cut.

    The shards tile the key space and none precedes another. All shards that precede them lie wholly before the cut, all that
    follow them lie wholly behind it. Whether that is so is checked where a cut is used, since it depends on the topic.

    Attributes:
        topic_id: The id of the topic; a topic that is created anew under the same name has another one.
        offsets: Shard id → offset, in order of shard ids; read-only.

    Raises:
        InvalidArgument: An id or an offset is not a whole number in its bounds, or there are too many shards, or none.

    Example:
        >>> Cut(7, {2: 0, 1: 250}).to_json()
        '{"cut":1,"topic_id":7,"offsets":{"1":250,"2":0}}'
        >>> Cut.from_json('{"cut":1,"topic_id":7,"offsets":{"1":250,"2":0}}').offsets[1]
        250
    """

    topic_id: int
    offsets: Mapping[int, int]

    def __post_init__(self) -> None:
        _check("topic_id", self.topic_id, 1, _ID_MAX)
        if not isinstance(self.offsets, Mapping) or not 1 <= len(self.offsets) <= TOPIC_SHARDS_MAX:
            raise InvalidArgument(f"a cut has the offsets of 1 to {TOPIC_SHARDS_MAX} shards")
        for shard_id, offset in self.offsets.items():
            _check("shard id", shard_id, 0, _ID_MAX)
            _check(f"offset of shard {shard_id}", offset, 0, OFFSET_MAX)
        object.__setattr__(self, "offsets", MappingProxyType(dict(sorted(self.offsets.items()))))

    def __hash__(self) -> int:
        return hash((self.topic_id, tuple(self.offsets.items())))

    def __reduce__(self) -> tuple[type[Cut], tuple[int, dict[int, int]]]:
        return Cut, (self.topic_id, dict(self.offsets))

    def to_json(self) -> str:
        """Return the text form. Equal cuts have equal texts."""
        offsets = {str(shard_id): offset for shard_id, offset in self.offsets.items()}
        return json.dumps({"cut": VERSION, "topic_id": self.topic_id, "offsets": offsets}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Cut:
        """Return the cut of a text form.

        Raises:
            InvalidArgument: The text is not one of a cut.
            UnsupportedVersion: A later version of rangelog has written the text.
        """
        if not isinstance(text, str) or len(text) > _TEXT_LENGTH_MAX:
            raise InvalidArgument("this is not the text of a cut")
        try:
            parsed = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"this is not the text of a cut: {error}") from error
        if not isinstance(parsed, dict) or type(parsed.get("cut")) is not int:
            raise InvalidArgument("this is not the text of a cut: it has no version")
        if parsed["cut"] != VERSION:
            raise UnsupportedVersion(
                f"a cut of version {reprlib.repr(parsed['cut'])}; this rangelog reads version {VERSION}: upgrade"
            )
        offsets = parsed.get("offsets")
        if parsed.keys() != {"cut", "topic_id", "offsets"} or not isinstance(offsets, dict):
            raise InvalidArgument("the text of a cut has the fields cut, topic_id and offsets")
        return cls(parsed["topic_id"], {_shard_id(text): offset for text, offset in offsets.items()})


def _check(what: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(
            f"the {what} of a cut must be a whole number from {low} to {high}, not {reprlib.repr(value)}"
        )


def _shard_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and str(int(text)) == text):
        raise InvalidArgument(f"bad shard id {reprlib.repr(text)} in the text of a cut")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found
