"""One partition of a table: a sorted map whose changes have versions. A machine on a journal (T7).

What holds:
- The version of the partition rises with each command that changes something; a row has the version of its last change.
- A command's writes are all done or none is: all conditions hold on the state before it, or it is refused.
- The changes since a version can be asked for as long as it is among the last ones; before that it is an error, never a hole.

A row is a value of Python, never changed in place, so a snapshot is a list of references.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from sortedcontainers import SortedDict

from rangelog_broker.journal.entry import PIECE_BYTES_MAX
from rangelog_core.errors import Corruption, InvalidArgument, OffsetTrimmed, PreconditionFailed, StorageFull
from rangelog_core.limits import KIB
from rangelog_proto.v1 import table_pb2

KEY_BYTES_MAX = 4 * KIB
VALUE_BYTES_MAX = PIECE_BYTES_MAX - KEY_BYTES_MAX - KIB
WRITES_MAX = 1_000
"""In one command."""
BYTES_MAX = 1 << 30
"""Of all rows of a partition."""
CHANGES_MAX = 100_000
"""Changes that watchers may ask for."""
ROW_OVERHEAD_BYTES = 64
SCAN_BYTES_MAX = 512 * KIB
_CHANGES_BYTES_MAX = 256 * KIB
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


class TablePartition:
    """See the module."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        """`bytes_max` is part of the machine: all owners of one partition have the same."""
        self.version = 0
        self._rows: SortedDict[bytes, Row] = SortedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._changes: deque[tuple[int, bytes]] = deque()
        self._oldest_change = 0  # all changes above this version are among them

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
        return _pieces(self.version, self._oldest_change, list(self._changes), list(self._rows.items()))

    def restore(self, pieces: Iterable[bytes]) -> None:
        """See JournalMachine. Raises Corruption."""
        self.__init__(bytes_max=self._bytes_max)  # type: ignore[misc]
        rows: dict[bytes, Row] = {}
        try:
            for piece in pieces:
                if piece[:1] == _HEAD:
                    head = table_pb2.TableHead.FromString(piece[1:])
                    self.version, self._oldest_change = head.version, head.oldest_change
                    self._changes.extend((change.version, change.key) for change in head.changes)
                elif piece[:1] == _ROWS:
                    for row in table_pb2.TableRows.FromString(piece[1:]).rows:
                        rows[row.key] = Row(row.value, row.version)
                else:
                    raise Corruption("a table's snapshot has a piece of an unknown kind")
        except DecodeError as error:
            raise Corruption("a table's snapshot does not decode") from error
        self._rows = SortedDict(rows)
        self._bytes = sum(_size(key, row.value) for key, row in rows.items())

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

    def changes_since(self, version: int, limit: int) -> list[tuple[int, bytes]]:
        """Return (version, key) of changes above a version, in order; a key changed more than once is there more than once.

        Changes of one version are returned together. Raises OffsetTrimmed: they are not known any more, scan instead.
        """
        if version < self._oldest_change:
            raise OffsetTrimmed(
                f"changes from version {version} on are not known any more: scan the table, then watch from its version",
                offset=self._oldest_change,
            )
        found: list[tuple[int, bytes]] = []
        for change in self._changes:
            if change[0] > version:
                if len(found) >= limit and change[0] != found[-1][0]:
                    break
                found.append(change)
        return found

    # ---- inside

    def _checked(self, message: table_pb2.TableCommand) -> Sequence[table_pb2.TableWrite]:
        writes = message.writes
        if not 0 < len(writes) <= WRITES_MAX:
            raise InvalidArgument(f"a command of {len(writes)} writes; 1 to {WRITES_MAX} are allowed")
        if len({write.key for write in writes}) != len(writes):
            raise InvalidArgument("a command writes one key twice")
        growth = 0
        for write in writes:
            if not 0 < len(write.key) <= KEY_BYTES_MAX:
                raise InvalidArgument(f"a key of {len(write.key)} bytes; 1 to {KEY_BYTES_MAX} are allowed")
            if len(write.value) > VALUE_BYTES_MAX:
                raise InvalidArgument(f"a value of {len(write.value)} bytes; the limit is {VALUE_BYTES_MAX}")
            if not (write.HasField("value") or write.remove or write.check):
                raise InvalidArgument("a write without a change")
            self._check_condition(write)
            growth += self._growth(write)
        if growth > 0 and self._bytes + growth > self._bytes_max:
            raise StorageFull(
                f"the partition has {self._bytes} bytes of rows; the limit is {self._bytes_max}: remove some"
            )
        return writes

    def _check_condition(self, write: table_pb2.TableWrite) -> None:
        expected = write.condition.WhichOneof("expected")
        if expected is None:
            return
        row = self._rows.get(write.key)
        if expected == "absent":
            if write.condition.absent != (row is None):
                raise PreconditionFailed("the key is there" if row is not None else "the key is not there")
        elif row is None or row.version != write.condition.version:
            found = "not there" if row is None else f"there in version {row.version}"
            raise PreconditionFailed(f"the key is {found}, not in version {write.condition.version}")

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
        if write.WhichOneof("change") == "value":
            self._rows[write.key] = Row(write.value, self.version)
        else:
            del self._rows[write.key]
        self._changes.append((self.version, write.key))

    def _forget(self) -> None:
        """Keep the last changes only, those of one version together."""
        changes = self._changes
        while len(changes) > CHANGES_MAX:
            self._oldest_change = changes[0][0]
            while changes and changes[0][0] == self._oldest_change:
                changes.popleft()


def _size(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + ROW_OVERHEAD_BYTES


def _pieces(
    version: int, oldest_change: int, changes: list[tuple[int, bytes]], rows: list[tuple[bytes, Row]]
) -> Iterator[bytes]:
    head, size = table_pb2.TableHead(version=version, oldest_change=oldest_change), 0
    for changed, key in changes:
        if size + len(key) + 16 > _CHANGES_BYTES_MAX:
            yield _HEAD + head.SerializeToString()
            head, size = table_pb2.TableHead(version=version, oldest_change=oldest_change), 0
        head.changes.append(table_pb2.TableChange(version=changed, key=key))
        size += len(key) + 16
    yield _HEAD + head.SerializeToString()
    page, size = table_pb2.TableRows(), 0
    for key, row in rows:
        if page.rows and size + _size(key, row.value) > SCAN_BYTES_MAX:
            yield _ROWS + page.SerializeToString()
            page, size = table_pb2.TableRows(), 0
        page.rows.append(table_pb2.TableRow(key=key, value=row.value, version=row.version))
        size += _size(key, row.value)
    if page.rows:
        yield _ROWS + page.SerializeToString()
