"""What the producer and the members of the chaos run's topic write down: one line per event, and how far each key is.

A record's value tells its producer, its key and its number in that key (`chaos_history.value_of`).
"""

from __future__ import annotations

import json
import mmap
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import chaos_history
from tests.support.history import cut_off_a_torn_line, open_for_appending, write_all

TOPIC = "events"
GROUP = "audit"
KEYS = 8
VALUE_BYTES = 120
_PROGRESS = struct.Struct(f"<q{KEYS}q{KEYS}q")


class RecordName(NamedTuple):
    """What identifies a record: a producer, one of its keys, and the number in it."""

    producer: str
    key: int
    number: int


def value_of(name: RecordName) -> bytes:
    """Return the value of a record."""
    return chaos_history.value_of(f"{name.producer}.{name.key}", name.number, VALUE_BYTES)


def name_of(value: bytes) -> RecordName | None:
    """Return what a value tells; None: no producer made it."""
    writer, _, number = chaos_history.identity_of(value).decode("latin-1").partition(":")
    producer, _, key = writer.rpartition(".")
    return RecordName(producer, int(key), int(number)) if number.isdigit() and key.isdigit() else None


class Progress(NamedTuple):
    """How far each key is: by number, -1 at first."""

    last_ns: int
    begun: Sequence[int]
    """Sent by a producer; of a member nothing."""
    done: Sequence[int]
    """Acked, or processed."""


NOTHING = Progress(0, (-1,) * KEYS, (-1,) * KEYS)


class ProgressFile:
    """The writing side: a shared page."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.truncate(_PROGRESS.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._begun, self._done = [-1] * KEYS, [-1] * KEYS
        self._last_ns = 0
        self._write()

    def begun(self, key: int, number: int) -> None:
        """A record was sent."""
        self._begun[key] = max(self._begun[key], number)
        self._write()

    def done(self, key: int, number: int) -> None:
        """A record was acked or processed."""
        self._done[key] = max(self._done[key], number)
        self._last_ns = time.monotonic_ns()
        self._write()

    def _write(self) -> None:
        _PROGRESS.pack_into(self._map, 0, self._last_ns, *self._begun, *self._done)


def read_progress(path: Path) -> Progress:
    """Return how far a process is; one that has written nothing yet is nowhere."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    if len(data) != _PROGRESS.size:
        return NOTHING
    last_ns, *numbers = _PROGRESS.unpack(data)
    return Progress(last_ns, tuple(numbers[:KEYS]), tuple(numbers[KEYS:]))


class Notes:
    """A file of lines; each is with the kernel when `note` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_for_appending(path)
        cut_off_a_torn_line(self._descriptor)

    def note(self, *events: Sequence[Any]) -> None:
        """Append events. Raises OSError."""
        write_all(self._descriptor, "".join(json.dumps(event) + "\n" for event in events))


def read_notes(path: Path) -> Iterator[list[Any]]:
    """Yield the events of a file; a torn last line is none."""
    if path.exists():
        with path.open() as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
