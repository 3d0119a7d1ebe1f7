"""Indexes over the tables, so that no query reads a whole table.

What holds: each index follows from the rows alone, so it is the same on every member, and a restore builds it by putting
every row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic

from rangelog_pd.state.tables import RangeKey, V, discard, mark, row_of
from rangelog_proto.v1 import common_pb2

Hosting = tuple[str, int]
"""A server in one incarnation."""

_INSERTED_MAX = 64
_OPEN, _SEALED = common_pb2.RANGE_STATE_OPEN, common_pb2.RANGE_STATE_SEALED


@dataclass(slots=True)
class Hosted:
    """The ranges of which one server, in one incarnation, is a member."""

    open: dict[RangeKey, None] = field(default_factory=dict)
    sealed: dict[RangeKey, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.open) + len(self.sealed)

    def __contains__(self, key: RangeKey) -> bool:
        return key in self.open or key in self.sealed


NOTHING_HOSTED = Hosted()


class HostedRanges:
    """The ranges of all servers, by server and incarnation."""

    def __init__(self) -> None:
        self._hosted: dict[Hosting, Hosted] = {}
        self.open_count = 0

    def of(self, server: str, incarnation: int) -> Hosted:
        """Return the ranges of a server. Callers must not change them."""
        return self._hosted.get((server, incarnation), NOTHING_HOSTED)

    def hostings(self) -> dict[Hosting, Hosted]:
        """Return all servers with ranges. Callers must not change them."""
        return self._hosted

    def changed(self, before: common_pb2.Range | None, after: common_pb2.Range | None) -> None:
        """A row of the ranges changed."""
        if before is not None:
            self.open_count -= before.state == _OPEN
            for replica in before.replicas:
                self._remove(replica, (before.stream_id, before.index))
        if after is not None:
            self.open_count += after.state == _OPEN
            for replica in after.replicas:
                hosted = self._hosted.get((replica.server, replica.incarnation))
                if hosted is None:
                    hosted = self._hosted[replica.server, replica.incarnation] = Hosted()
                part = hosted.open if after.state == _OPEN else hosted.sealed
                part[after.stream_id, after.index] = None

    def _remove(self, replica: common_pb2.Replica, key: RangeKey) -> None:
        hosting = (replica.server, replica.incarnation)
        hosted = self._hosted[hosting]
        hosted.open.pop(key, None)
        hosted.sealed.pop(key, None)
        if not hosted:
            del self._hosted[hosting]


class Names(Generic[V]):
    """Names of rows in order, and their ids. Names never change."""

    def __init__(self, name_of: Callable[[V], str], id_of: Callable[[V], int], hidden: str = "") -> None:
        """`hidden`: one character; `page` leaves out names that start with it, unless it is asked for them."""
        self._name_of, self._id_of, self._hidden = name_of, id_of, hidden
        self._ids: dict[str, int] = {}
        self._sorted: list[str] = []
        self._unsorted: list[str] = []

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def get(self, name: str) -> int | None:
        """Return the id of a row, or None."""
        return self._ids.get(name)

    def ids(self) -> dict[str, int]:
        """Return all. Not to be changed."""
        return self._ids

    def page(self, prefix: str, after: str, size: int) -> list[str]:
        """Return up to `size` names that start with `prefix` and come after `after`."""
        self._sort()
        found: list[str] = []
        at = bisect_left(self._sorted, max(prefix, after))
        while at < len(self._sorted) and len(found) < size:
            name = self._sorted[at]
            if not name.startswith(prefix):
                break
            if self._hidden and not prefix and name.startswith(self._hidden):
                at = bisect_left(self._sorted, chr(ord(self._hidden) + 1), at)
                continue
            if name != after:
                found.append(name)
            at += 1
        return found

    def changed(self, before: V | None, after: V | None) -> None:
        """Note a change of a row."""
        if before is None and after is not None:
            name = self._name_of(after)
            self._ids[name] = self._id_of(after)
            self._unsorted.append(name)
        elif before is not None and after is None:
            self._sort()
            name = self._name_of(before)
            del self._ids[name]
            del self._sorted[bisect_left(self._sorted, name)]

    def _sort(self) -> None:
        """Insert a few new names; sort many, as after a restore."""
        if len(self._unsorted) > _INSERTED_MAX:
            self._sorted += self._unsorted
            self._sorted.sort()
        else:
            for name in self._unsorted:
                insort(self._sorted, name)
        self._unsorted.clear()


class RangeObjects:
    """The objects of each range, oldest first, tombstones included; and the uploads and deletions among them."""

    def __init__(self) -> None:
        self._ids: dict[RangeKey, dict[int, None]] = {}
        self.prepared: dict[int, None] = {}
        """Uploads under way."""
        self.tombstones: dict[int, None] = {}
        """Tombstones in order of their dates."""
        self.committed_count = self.encrypted_count = 0

    def of(self, key: RangeKey) -> list[int]:
        """Return the ids of a range's objects."""
        return list(self._ids.get(key, ()))

    def changed(self, before: common_pb2.Object | None, after: common_pb2.Object | None) -> None:
        """A row of the objects changed."""
        row = row_of(before, after)
        self.committed_count += _is_committed(after) - _is_committed(before)
        self.encrypted_count += _is_encrypted(after) - _is_encrypted(before)
        if before is None:
            self._ids.setdefault((row.stream_id, row.range_index), {})[row.object_id] = None
        if after is None:
            self.prepared.pop(row.object_id, None)
            self.tombstones.pop(row.object_id, None)
            discard(self._ids, (row.stream_id, row.range_index), row.object_id)
            return
        mark(self.prepared, after.object_id, present=after.state == common_pb2.OBJECT_STATE_PREPARED)
        if after.state == common_pb2.OBJECT_STATE_DELETED:
            self.tombstones.setdefault(after.object_id)

    def sort_tombstones(self, objects: Mapping[int, common_pb2.Object]) -> None:
        """Sort the tombstones by date, after all rows were put at once."""

        def date(object_id: int) -> tuple[bool, int, int]:
            deleted_ms = objects[object_id].deleted_ms
            return not deleted_ms, deleted_ms, object_id

        self.tombstones = dict.fromkeys(sorted(self.tombstones, key=date))

    def all(self) -> dict[RangeKey, dict[int, None]]:
        """Return all. Not to be changed."""
        return self._ids


def _is_encrypted(row: common_pb2.Object | None) -> bool:
    return row is not None and row.encryption_key_id != ""


def _is_committed(row: common_pb2.Object | None) -> bool:
    return row is not None and row.state == common_pb2.OBJECT_STATE_COMMITTED
