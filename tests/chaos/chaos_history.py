"""What a client process saw, as lines of JSON that survive its `kill -9`, and a pulse that the supervisor can watch.

A line is with the kernel before the call it tells of is made (invoke), and as soon as its outcome is known (ok, unknown,
fail). What has no outcome is UNKNOWN. Times are CLOCK_MONOTONIC in ns, which all processes of one machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_PULSE = struct.Struct("<8q")

Identity = tuple[str, int, int]
"""Writer, epoch, sequence: of one record, and of no other."""

STARTING, READY, OPEN, FENCED, STOPPED, DONE = range(6)
STATES = ("starting", "ready", "open", "fenced", "stopped", "done")
_FILLER = b"0123456789abcdef"


def value_of(writer: str, epoch: int, sequence: int, size_bytes: int) -> bytes:
    """The one value of a record: its identity, and a filler that depends on it so that damage shows."""
    identity = b"%s:%d:%d:" % (writer.encode(), epoch, sequence)
    turn = sequence % len(_FILLER)
    filler = _FILLER[turn:] + _FILLER[:turn]
    return (identity + filler * (size_bytes // len(filler) + 1))[:size_bytes]


def identity_of(value: bytes) -> tuple[str, int, int]:
    """Raises ValueError when the value is not exactly what `value_of` made."""
    writer, epoch, sequence, _ = value.split(b":", 3)
    found = writer.decode(), int(epoch), int(sequence)
    if value_of(*found, len(value)) != value:
        raise ValueError("the value is damaged")
    return found


Run = tuple[str, int, int, int]
"""Writer, epoch, first sequence, count: consecutive records of one writer."""


def packed(identities: Sequence[Identity]) -> list[Run]:
    """Identities in the order read, as runs."""
    runs: list[Run] = []
    for writer, epoch, sequence in identities:
        if runs and runs[-1][:2] == (writer, epoch) and runs[-1][2] + runs[-1][3] == sequence:
            runs[-1] = (*runs[-1][:3], runs[-1][3] + 1)
        else:
            runs.append((writer, epoch, sequence, 1))
    return runs


def unpacked(runs: Iterable[Run]) -> Iterator[Identity]:
    """The other way round."""
    for writer, epoch, first, count in runs:
        for sequence in range(first, first + count):
            yield writer, epoch, sequence


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


class LineFile:
    """Lines that are with the kernel when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, lines: Iterable[str]) -> None:
        """Append lines in one system call."""
        data = "".join(f"{line}\n" for line in lines).encode()
        while data:
            data = data[os.write(self._descriptor, data) :]
