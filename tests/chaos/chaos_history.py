"""What client processes of a run write beside their histories: values that tell where they come from, and a pulse.

Identities are what tests/support/history.py asks for: a few bytes that no other record of the stream has.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

_PULSE = struct.Struct("<8q")

STARTING, READY, OPEN, FENCED, STOPPED, DONE, GONE = range(7)
STATES = ("starting", "ready", "open", "fenced", "stopped", "done", "gone")
"""Fenced: another writer has the stream. Gone: the stream was deleted."""
_FILLER = b"0123456789abcdef"


def identity(writer: str, sequence: int) -> bytes:
    """Of a writer's record with this number, and of no other."""
    return b"%s:%d" % (writer.encode(), sequence)


def value_of(writer: str, sequence: int, size_bytes: int) -> bytes:
    """The one value of a record: its identity, and a filler that depends on it so that damage shows."""
    turn = sequence % len(_FILLER)
    filler = _FILLER[turn:] + _FILLER[:turn]
    return (identity(writer, sequence) + b":" + filler * (size_bytes // len(filler) + 1))[:size_bytes]


def identity_of(value: bytes) -> bytes:
    """The identity in a value; of a value that no writer made, something that is nobody's identity."""
    try:
        writer, sequence, _ = value.split(b":", 2)
        if value_of(writer.decode(), int(sequence), len(value)) == value:
            return writer + b":" + sequence
    except ValueError:
        pass
    return b"damaged " + value[:60]


class Pulse(NamedTuple):
    """How a client process is: the supervisor reads this while it works."""

    state: int
    epoch: int
    records: int
    """Records acked or read."""
    offset: int
    """One past the last record acked or read; -1 before the first."""
    last_ns: int
    """When that was."""
    errors: int
    """Unexpected stops."""
    invoked: int
    waits: int
    """Times the application waited longer than its deadline."""


class PulseFile:
    """The writing side: eight numbers in a shared page."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.truncate(_PULSE.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._last = Pulse(STARTING, 0, 0, -1, 0, 0, 0, 0)

    def beat(self, **changes: int) -> None:
        """Change some of the numbers."""
        self._last = self._last._replace(**changes)
        _PULSE.pack_into(self._map, 0, *self._last)

    @property
    def last(self) -> Pulse:
        """As said last."""
        return self._last


def read_pulse(path: Path) -> Pulse:
    """The last beat; a process that has said nothing yet is starting."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    return Pulse(*_PULSE.unpack(data)) if len(data) == _PULSE.size else Pulse(STARTING, 0, 0, -1, 0, 0, 0, 0)
