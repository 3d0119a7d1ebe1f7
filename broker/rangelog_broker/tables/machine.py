"""One partition of a table: a sorted map whose changes have versions. A machine on a journal (T7).

What holds:
- The version of the partition rises with each command that changes something; a row has the version of its last change.
- A command's writes are all done or none is: all conditions hold on the state before it, or it is refused.
- The changes since a version can be asked for as long as it is among the last ones; before that it is an error, never a hole.
  Each change that is returned is the last one of its key: what a later change has replaced is left out.

A row is a value of Python, never changed in place, so a snapshot is a list of keys, and of the rows that changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakSet

from google.protobuf.message import DecodeError
from sortedcontainers import SortedDict

from rangelog_core.errors import Corruption, InvalidArgument, OffsetTrimmed, PreconditionFailed, StorageFull
from rangelog_core.limits import KIB, TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX, TABLE_WRITES_MAX
from rangelog_proto.v1 import table_pb2

BYTES_MAX = 1 << 30
"""Of all rows of a partition."""
CHANGES_MAX = 100_000
"""Changes that watchers may ask for."""
CHANGES_BYTES_MAX = 32 << 20
"""Of their keys."""
CHANGES_LOOKED_AT_MAX = 10_000
"""For one page of changes."""
ROW_OVERHEAD_BYTES = 64
SCAN_BYTES_MAX = 512 * KIB
_HEAD_BYTES_MAX = 256 * KIB
_HEAD, _ROWS = b"H", b"R"


class Row(NamedTuple):
    """The value of a key, and the version of its last change."""

    value: bytes
    version: int


class Page(NamedTuple):
    """A part of a scan. `next_key`: where the next part begins; None: there is none. `version`: of the partition."""

    rows: Sequence[tuple[bytes, Row]]
    next_key: bytes | None
    version: int


class RowChange(NamedTuple):
    """The last change of a key. `row` is None: the key was removed."""

    version: int
    key: bytes
    row: Row | None


class ChangePage(NamedTuple):
    """A part of the changes. All changes up to `version` are in it, were in a part before, or have been replaced."""

    changes: Sequence[RowChange]
    version: int


class _Captured:
    """The rows at one moment, in the order of their keys: to copy them all would hold the loop for a second a million rows.

    A snapshot owns it, and walks it once. `note` is called before a row changes or is removed.
    """

    __slots__ = ("__weakref__", "_before", "_keys", "_rows")

    def __init__(self, rows: SortedDict[bytes, Row]) -> None:
        self._rows = rows
        self._keys = list(rows)
        self._before: dict[bytes, Row] = {}

    def __iter__(self) -> Iterator[tuple[bytes, Row]]:
        for key in self._keys:
            yield key, self._before.pop(key) if key in self._before else self._rows[key]

    def note(self, key: bytes) -> None:
        row = self._rows.get(key)
        if row is not None:
            self._before.setdefault(key, row)


class TablePartition:
    """See the module."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        """`bytes_max` is part of the machine: all owners of one partition have the same."""
        self.level = 0
        self.version = 0
        self._rows: SortedDict[bytes, Row] = SortedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._changes: deque[tuple[int, bytes]] = deque()
        self._changes_bytes = 0
        self._removed: dict[
            bytes, int
        ] = {}  # keys that are not there, and among the changes: the version of the removal
        self._oldest_change = 0  # all changes above this version are among them
        self._captured: WeakSet[_Captured] = WeakSet()  # by snapshots that are not taken to their end

    # ---- JournalMachine

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return self._bytes

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a TableCommand; return a TableResult. Raises PreconditionFailed, InvalidArgument, StorageFull."""
        try:
            message = table_pb2.TableCommand.FromString(command)
        except DecodeError as error:
            raise InvalidArgument("a command of a table does not decode") from error
        writes = self._checked(message)
        changed = [write for write in writes if self._changes_something(write)]
        if changed:
            self.version += 1
            for write in changed:
                self._write(write)
            self._forget()
        return table_pb2.TableResult(version=self.version, changed=bool(changed)).SerializeToString()

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        captured = _Captured(self._rows)
        self._captured.add(captured)
        return _pieces(self.version, self._oldest_change, list(self._changes), captured)

    def restore_begin(self) -> None:
        """See JournalMachine."""
        self.__init__(bytes_max=self._bytes_max)  # type: ignore[misc]

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine. Rows come in the order of their keys."""
        try:
            if piece[:1] == _HEAD:
                head = table_pb2.TableHead.FromString(piece[1:])
                self.version, self._oldest_change = head.version, head.oldest_change
                self._changes.extend((change.version, change.key) for change in head.changes)
                self._changes_bytes += sum(len(change.key) for change in head.changes)
            elif piece[:1] == _ROWS:
                for row in table_pb2.TableRows.FromString(piece[1:]).rows:
                    if row.key in self._rows:
                        raise Corruption("a table's snapshot has a row twice")
                    self._rows[row.key] = Row(row.value, row.version)
                    self._bytes += _size(row.key, row.value)
            else:
                raise Corruption("a table's snapshot has a piece of an unknown kind")
        except DecodeError as error:
            raise Corruption("a table's snapshot does not decode") from error

    def restore_end(self) -> None:
        """See JournalMachine."""
        self._removed = {key: version for version, key in self._changes if key not in self._rows}

    # ---- reads

    def get(self, key: bytes) -> Row | None:
        """Return the row of a key."""
        row: Row | None = self._rows.get(key)
        return row

    def scan(self, start: bytes, end: bytes | None, limit: int) -> Page:
        """Return rows from `start` on, before `end`, at most `limit` and about half a MiB of them."""
        found: list[tuple[bytes, Row]] = []
        size = 0
        for key in self._rows.irange(start, end, inclusive=(True, False)):
            row = self._rows[key]
            if len(found) >= limit or (found and size + _size(key, row.value) > SCAN_BYTES_MAX):
                return Page(found, key, self.version)
            found.append((key, row))
            size += _size(key, row.value)
        return Page(found, None, self.version)

    def changes_since(self, version: int, limit: int, *, start: bytes = b"", end: bytes | None = None) -> ChangePage:
        """Return the last changes of keys from `start` on, before `end`, above a version, in order of versions.

        About `limit` changes and half a MiB: those of one version are returned together.

        Raises OffsetTrimmed: they are not known any more, scan instead.
        """
        if version < self._oldest_change:
            raise OffsetTrimmed(
                f"changes from version {version} on are not known any more: scan the table, then watch from its version",
                offset=self._oldest_change,
            )
        found: list[RowChange] = []
        size = 0
        changes, reached = self._changes, version
        first = bisect_right(changes, version, key=_version_of)
        for place in range(first, len(changes)):
            changed, key = changes[place]
            full = len(found) >= limit or size >= SCAN_BYTES_MAX or place - first >= CHANGES_LOOKED_AT_MAX
            if full and changed != reached:
                return ChangePage(found, reached)
            reached = changed
            if key < start or (end is not None and key >= end):
                continue
            row = self._rows.get(key)
            if changed == (row.version if row is not None else self._removed[key]):
                found.append(RowChange(changed, key, row))
                size += _size(key, row.value if row is not None else b"")
        return ChangePage(found, max(version, self.version))

    # ---- inside

    def _checked(self, message: table_pb2.TableCommand) -> Sequence[table_pb2.TableWrite]:
        check_command(message)
        writes = message.writes
        growth = 0
        for number, write in enumerate(writes):
            self._check_condition(write, number)
            growth += self._growth(write)
        if growth > 0 and self._bytes + growth > self._bytes_max:
            raise StorageFull(
                f"the partition has {self._bytes} bytes of rows; the limit is {self._bytes_max}: remove some"
            )
        return writes

    def _check_condition(self, write: table_pb2.TableWrite, number: int) -> None:
        expected = write.condition.WhichOneof("expected")
        if expected is None:
            return
        row = self._rows.get(write.key)
        if expected == "absent":
            if write.condition.absent != (row is None):
                found = f"there in version {row.version}" if row is not None else "not there"
                raise PreconditionFailed(f"write {number}: the key is {found}")
        elif row is None or row.version != write.condition.version:
            found = "not there" if row is None else f"there in version {row.version}"
            raise PreconditionFailed(f"write {number}: the key is {found}, not in version {write.condition.version}")

    def _growth(self, write: table_pb2.TableWrite) -> int:
        row = self._rows.get(write.key)
        before = 0 if row is None else _size(write.key, row.value)
        change = write.WhichOneof("change")
        if change == "value":
            return _size(write.key, write.value) - before
        return -before if change == "remove" else 0

    def _changes_something(self, write: table_pb2.TableWrite) -> bool:
        change = write.WhichOneof("change")
        return change == "value" or (change == "remove" and write.key in self._rows)

    def _write(self, write: table_pb2.TableWrite) -> None:
        self._bytes += self._growth(write)
        key = write.key
        for each in self._captured:
            each.note(key)
        if write.WhichOneof("change") == "value":
            self._rows[key] = Row(write.value, self.version)
            self._removed.pop(key, None)
        else:
            del self._rows[key]
            self._removed[key] = self.version
        self._changes.append((self.version, key))
        self._changes_bytes += len(key)

    def _forget(self) -> None:
        """Keep the last changes only, those of one version together."""
        changes = self._changes
        while len(changes) > CHANGES_MAX or self._changes_bytes > CHANGES_BYTES_MAX:
            self._oldest_change = changes[0][0]
            while changes and changes[0][0] == self._oldest_change:
                version, key = changes.popleft()
                self._changes_bytes -= len(key)
                if self._removed.get(key) == version:
                    del self._removed[key]


def check_command(message: table_pb2.TableCommand) -> None:
    """Raise InvalidArgument for a command that no state allows."""
    writes = message.writes
    if not 0 < len(writes) <= TABLE_WRITES_MAX:
        raise InvalidArgument(f"a command of {len(writes)} writes; 1 to {TABLE_WRITES_MAX} are allowed")
    if len({write.key for write in writes}) != len(writes):
        raise InvalidArgument("a command writes one key twice")
    for write in writes:
        check_key(write.key)
        if len(write.value) > TABLE_VALUE_BYTES_MAX:
            raise InvalidArgument(f"a value of {len(write.value)} bytes; the limit is {TABLE_VALUE_BYTES_MAX}")
        if not (write.HasField("value") or write.remove or write.check):
            raise InvalidArgument("a write without a change")


def check_key(key: bytes) -> None:
    """Raise InvalidArgument for what is no key."""
    if not 0 < len(key) <= TABLE_KEY_BYTES_MAX:
        raise InvalidArgument(f"a key of {len(key)} bytes; 1 to {TABLE_KEY_BYTES_MAX} are allowed")


def _version_of(change: tuple[int, bytes]) -> int:
    return change[0]


def _size(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + ROW_OVERHEAD_BYTES


def _pieces(version: int, oldest_change: int, changes: list[tuple[int, bytes]], captured: _Captured) -> Iterator[bytes]:
    head, size = table_pb2.TableHead(version=version, oldest_change=oldest_change), 0
    for changed, key in changes:
        if size + len(key) + 16 > _HEAD_BYTES_MAX:
            yield _HEAD + head.SerializeToString()
            head, size = table_pb2.TableHead(version=version, oldest_change=oldest_change), 0
        head.changes.append(table_pb2.TableChange(version=changed, key=key))
        size += len(key) + 16
    yield _HEAD + head.SerializeToString()
    page, size = table_pb2.TableRows(), 0
    for key, row in captured:
        if page.rows and size + _size(key, row.value) > SCAN_BYTES_MAX:
            yield _ROWS + page.SerializeToString()
            page, size = table_pb2.TableRows(), 0
        page.rows.append(table_pb2.TableRow(key=key, value=row.value, version=row.version))
        size += _size(key, row.value)
    if page.rows:
        yield _ROWS + page.SerializeToString()
