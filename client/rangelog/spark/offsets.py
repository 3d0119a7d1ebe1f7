"""The offsets of a streaming query, as its checkpoint keeps them.

    {"rangelog": 1, "streams": {"flights": {"id": 7, "from": 0, "offset": 250}}, "skipped": 0}
    {"rangelog": 1, "topics": {"default/rides": {"id": 3, "cut": {"0": 120, "1": 80}}}, "skipped": 0}

A stream or topic is what its id says: a name that was used again since is another one. `from` is where the query began with the
stream. `skipped` counts the records that were trimmed before they were read, where the query goes on without them. What holds:
every version of rangelog that reads version 1 takes these texts for the same positions; a text of a later one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rangelog._topics.cut import Cut
from rangelog_core.errors import InvalidArgument, UnsupportedVersion
from rangelog_core.limits import OFFSET_MAX

VERSION = 1
_MARK = "rangelog"
_ID_MAX = (1 << 64) - 1
_SHARD_ID = re.compile("[0-9]{1,20}")


@dataclass(frozen=True)
class StreamOffset:
    """Where a query is in a stream: [first, offset) was read."""

    stream_id: int
    first: int
    offset: int


@dataclass(frozen=True)
class QueryOffsets:
    """Where a query is in all it reads; by name."""

    streams: Mapping[str, StreamOffset] = field(default_factory=dict)
    topics: Mapping[str, Cut] = field(default_factory=dict)
    skipped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return what the checkpoint keeps."""
        found: dict[str, Any] = {_MARK: VERSION, "skipped": self.skipped}
        if self.streams:
            found["streams"] = {
                name: {"id": each.stream_id, "from": each.first, "offset": each.offset}
                for name, each in sorted(self.streams.items())
            }
        if self.topics:
            found["topics"] = {
                name: {"id": each.topic_id, "cut": {str(shard): offset for shard, offset in each.offsets.items()}}
                for name, each in sorted(self.topics.items())
            }
        return found

    @classmethod
    def from_dict(cls, kept: Any) -> QueryOffsets:
        """Return the offsets that a checkpoint keeps. Raises InvalidArgument, UnsupportedVersion."""
        if not isinstance(kept, Mapping) or _MARK not in kept:
            raise InvalidArgument(
                "the checkpoint is not one of rangelog: start the query with a new checkpoint location"
            )
        version = _number(kept, _MARK)
        if version != VERSION:
            raise UnsupportedVersion(
                f"the checkpoint's offsets are of version {version}; this program reads version {VERSION}: upgrade it"
            )
        streams = {
            name: StreamOffset(_number(each, "id"), _number(each, "from"), _number(each, "offset"))
            for name, each in _rows(kept, "streams")
        }
        topics = {}
        for name, each in _rows(kept, "topics"):
            cut = each.get("cut")
            if not isinstance(cut, Mapping) or not all(_SHARD_ID.fullmatch(str(shard)) for shard in cut):
                raise InvalidArgument(f"the checkpoint's offsets of topic {name[:100]!r} have no cut")
            topics[name] = Cut(_number(each, "id"), {int(shard): _number(cut, shard) for shard in cut})
        return cls(streams, topics, _number(kept, "skipped"))


def _rows(kept: Mapping[str, Any], what: str) -> list[tuple[str, Mapping[str, Any]]]:
    rows = kept.get(what, {})
    if not isinstance(rows, Mapping) or not all(isinstance(each, Mapping) for each in rows.values()):
        raise InvalidArgument(f"the checkpoint's {what} are damaged")
    return list(rows.items())


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name, 0 if name == "skipped" else None)
    if type(value) is not int or not 0 <= value <= (_ID_MAX if name == "id" else OFFSET_MAX):
        raise InvalidArgument(f"the checkpoint's {name[:50]!r} is no number: {str(value)[:50]}")
    return value
