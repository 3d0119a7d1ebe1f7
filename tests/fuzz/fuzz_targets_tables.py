"""A table's partition: its commands, the pieces of its snapshots, and the keys of its rows."""

from __future__ import annotations

import struct
from random import Random

from rangelog_broker.tables.machine import TablePartition
from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_core.table_keys import row_key, split_row_key
from rangelog_proto.v1 import table_pb2
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed
from tests.support.journal_machines import restored

KNOWN = (1, 2, 3, b"a", b"b", b"c", b"")


def write(key: bytes, value: bytes | None = None, **condition: int | bool) -> table_pb2.TableWrite:
    """A put, or a removal."""
    made = table_pb2.TableWrite(key=key, condition=table_pb2.TableCondition(**condition) if condition else None)  # type: ignore[arg-type]
    if value is None:
        made.remove = True
    else:
        made.value = value
    return made


def command(*writes: table_pb2.TableWrite) -> bytes:
    """One encoded command."""
    return table_pb2.TableCommand(writes=writes).SerializeToString()


def filled() -> TablePartition:
    """A partition with rows in versions 1 to 3, and a removed one."""
    table = TablePartition(bytes_max=MIB)
    for each in (command(write(b"a", b"1")), command(write(b"b", b"2"), write(b"c", b"3")), command(write(b"c"))):
        table.apply(each, 0)
    return table


def state_of(table: TablePartition) -> list[bytes]:
    """All of it."""
    return list(table.snapshot())


def command_seeds() -> list[bytes]:
    """Commands that the partition above takes."""
    check = table_pb2.TableWrite(key=b"b", check=True, condition=table_pb2.TableCondition(version=2))
    return [
        command(write(b"a", b"2", version=1)),
        command(write(b"c", b"", absent=True), check),
        command(write(b"a"), write(b"b", b"x" * 100)),
    ]


def run_command(data: bytes) -> bool:
    """A refused command changes nothing; one that is taken leaves a state that a snapshot holds wholly."""
    table = filled()
    before = state_of(table)
    try:
        table.apply(data, 0)
    except RangelogError as error:
        assert state_of(table) == before, "a refused command left a trace"
        if isinstance(error, PreconditionFailed):
            return True
        raise
    copy = TablePartition(bytes_max=MIB)
    restored(copy, state_of(table))
    assert state_of(copy) == state_of(table)
    assert copy.size_bytes == table.size_bytes
    assert copy.changes_since(0, 10) == table.changes_since(0, 10)
    return True


def framed(pieces: list[bytes]) -> bytes:
    """Pieces, each behind its length."""
    return b"".join(struct.pack("<I", len(each)) + each for each in pieces)


def pieces_of(data: bytes) -> list[bytes]:
    """The pieces again; the last one may be cut."""
    pieces = []
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "little")
        pieces.append(data[4 : 4 + size])
        data = data[4 + size :]
    return pieces


def run_snapshot(data: bytes) -> bool:
    """What is restored can be read, changed and taken as a snapshot again."""
    table = TablePartition()
    restored(table, pieces_of(data))
    table.scan(b"", None, 100)
    try:
        table.changes_since(0, 100)
    except RangelogError:
        pass
    copy = TablePartition()
    restored(copy, table.snapshot())
    assert copy.size_bytes == table.size_bytes
    assert copy.version == table.version
    return True


def change_piece(data: bytes, random: Random) -> bytes:
    """Another message in one of the pieces."""
    pieces = pieces_of(data)
    if not pieces:
        return data
    place = random.randrange(len(pieces))
    kind = table_pb2.TableHead if pieces[place][:1] == b"H" else table_pb2.TableRows
    pieces[place] = pieces[place][:1] + encoded_changed(pieces[place][1:], kind, random, KNOWN)
    return framed(pieces)


def change_command(data: bytes, random: Random) -> bytes:
    """Another command."""
    return encoded_changed(data, table_pb2.TableCommand, random, KNOWN)


def key_seeds() -> list[bytes]:
    """Row keys."""
    return [row_key(b"k"), row_key(b"\x00k", b"f"), row_key(b"k", b"\x00\xff\x00"), row_key(b"\xff", b"\x00\x01")]


def run_key(data: bytes) -> bool:
    """A row key that is taken is the one that its parts make."""
    key, family = split_row_key(data)
    if len(data) <= 4_096:
        assert row_key(key, family) == data
    return True


TARGETS = (
    Target("table-command", command_seeds, run_command, None, (change_command,)),
    Target("table-snapshot", lambda: [framed(state_of(filled())), framed([])], run_snapshot, None, (change_piece,)),
    Target("table-key", key_seeds, run_key),
)
