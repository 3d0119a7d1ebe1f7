"""What clients saw, as events: kept in memory by a simulator, or as lines of a file that survives its writer's `kill -9`.

An event covers a run of consecutive records, so that noting costs a few microseconds per batch. Rules for who notes:

- An append is noted as invoked *before* the call is made, its outcome after; what has no outcome is UNKNOWN.
- A writer name is one client that numbers its appends upwards and never uses a number again (epochs may change meanwhile).
- An identity is a few bytes that no other record of the stream has. It stands for the payload.
- A reader name is one pass: from where it began, onwards. Who starts again elsewhere takes another name.
- Times are seconds of one clock that all clients share and that never goes back (CLOCK_MONOTONIC, or virtual time).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["ok", "failed", "unknown"]
LATIN = "latin-1"
"""Every byte is one character, so that identities of any bytes fit into JSON."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Longer than any event: how far back the start of a torn line can be."""


@dataclass(frozen=True, slots=True)
class Invoked:
    """Consecutive appends of one writer are about to be made.

    `crcs` of their payloads, when the client computes them; `timestamps_ms` when it gives them.
    """

    stream: str
    writer: str
    epoch: int | None
    sequence: int
    identities: tuple[bytes, ...]
    time_s: float
    crcs: tuple[int, ...] | None = None
    timestamps_ms: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of appends. `offset`: of the first, when they are OK; `epoch`: when it differs from the one invoked with."""

    stream: str
    writer: str
    sequence: int
    count: int
    outcome: Outcome
    time_s: float
    offset: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Saw:
    """One poll of a reader. `confirm_offset`: what an open range's server said it was when it served this."""

    stream: str
    reader: str
    offset: int
    identities: tuple[bytes, ...]
    source: str
    time_s: float
    confirm_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Final:
    """Read after all is over. `whole`: this source claims to have the stream from its start to its end without holes.

    `time_s`: when this was read; it matters where a retention is set.
    """

    stream: str
    source: str
    offset: int
    identities: tuple[bytes, ...]
    crcs: tuple[int, ...] | None = None
    whole: bool = True
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Records below `start_offset` may be gone from `time_s` on; noted before the trim is asked for."""

    stream: str
    start_offset: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Retained:
    """The stream keeps records for `retention_s`: what was acked longer ago than that may be gone."""

    stream: str
    retention_s: float


@dataclass(frozen=True, slots=True)
class EndTold:
    """Somebody asked where the stream ends, and was told `offset`. `exact`: the product says that no ack is missing."""

    stream: str
    reader: str
    offset: int
    invoked_s: float
    time_s: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Started:
    """A reader that asked for records from a time on began at `offset`."""

    stream: str
    reader: str
    timestamp_ms: int
    offset: int
    invoked_s: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Bounded:
    """A reader with an end ended without an error: it claims to have given all of [start, end)."""

    stream: str
    reader: str
    start: int
    end: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A reader was told that there is no `offset`: it is beyond the end, or all below `trimmed` is gone."""

    stream: str
    reader: str
    offset: int
    invoked_s: float
    time_s: float
    trimmed: int | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleting the stream was done at `time_s`. Not `certain`: a server may not have heard of it. No `Final` follows."""

    stream: str
    time_s: float
    certain: bool


Event = Invoked | Ended | Saw | Final | Trimmed | Retained | EndTold | Started | Bounded | Refused | Deleted
TAGS: dict[type[Any], str] = {
    Invoked: "i",
    Ended: "e",
    Saw: "s",
    Final: "f",
    Trimmed: "t",
    Retained: "k",
    EndTold: "n",
    Started: "b",
    Bounded: "d",
    Refused: "r",
    Deleted: "g",
}
_TYPES: dict[str, type[Any]] = {tag: kind for kind, tag in TAGS.items()}


def to_line(event: Event) -> str:
    """One line of JSON, without its end; fields that are not set at the end of the event are left out."""
    fields = [TAGS[type(event)], *(getattr(event, name) for name in event.__slots__)]
    if (place := _IDENTITIES_AT.get(type(event))) is not None:
        fields[place] = [each.decode(LATIN) for each in fields[place]]
    while fields[-1] is None:
        fields.pop()
    return json.dumps(fields, separators=(",", ":"))


def from_line(line: str) -> Event:
    """The event of a line. Raises ValueError for anything else."""
    tag, *fields = json.loads(line)
    kind = _TYPES.get(tag)
    if kind is None:
        raise ValueError(f"no event of kind {tag!r}")
    if (place := _IDENTITIES_AT.get(kind)) is not None:
        fields[place - 1] = tuple(each.encode(LATIN) for each in fields[place - 1])
    for places in (_CRCS_AT, _TIMESTAMPS_AT):
        if (place := places.get(kind)) is not None and len(fields) >= place and fields[place - 1] is not None:
            fields[place - 1] = tuple(fields[place - 1])
    event: Event = kind(*fields)
    return event


def _places(name: str) -> dict[type[Any], int]:
    return {kind: kind.__slots__.index(name) + 1 for kind in TAGS if name in kind.__slots__}


_IDENTITIES_AT = _places("identities")
_CRCS_AT = _places("crcs")
_TIMESTAMPS_AT = _places("timestamps_ms")


class History:
    """Notes events, in memory or (see `FileHistory`) in a file."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, *events: Event) -> None:
        """Keep events, in the order in which they happened to this client."""
        self.events += events

    def invoked(
        self,
        stream: str,
        writer: str,
        sequence: int,
        identities: Sequence[bytes],
        time_s: float,
        epoch: int | None = None,
    ) -> None:
        """Appends `sequence`, `sequence + 1`, … are about to be made."""
        self.note(Invoked(stream, writer, epoch, sequence, tuple(identities), time_s))

    def ok(self, stream: str, writer: str, sequence: int, offset: int, time_s: float, count: int = 1) -> None:
        """They were acked, the first at `offset`."""
        self.note(Ended(stream, writer, sequence, count, "ok", time_s, offset))

    def failed(self, stream: str, writer: str, sequence: int, time_s: float, count: int = 1) -> None:
        """They are not in the log and never will be."""
        self.note(Ended(stream, writer, sequence, count, "failed", time_s))

    def unknown(self, stream: str, writer: str, sequence: int, time_s: float, count: int = 1) -> None:
        """Nobody can say, except the log itself."""
        self.note(Ended(stream, writer, sequence, count, "unknown", time_s))

    def saw(
        self,
        stream: str,
        reader: str,
        offset: int,
        identities: Sequence[bytes],
        time_s: float,
        source: str = "unknown",
        confirm_offset: int | None = None,
    ) -> None:
        """One poll returned these records."""
        self.note(Saw(stream, reader, offset, tuple(identities), source, time_s, confirm_offset))

    def final(
        self,
        stream: str,
        source: str,
        offset: int,
        identities: Sequence[bytes],
        crcs: Sequence[int] | None = None,
        *,
        whole: bool = True,
    ) -> None:
        """What one source (hot, tier, one replica, one object) holds when all is over."""
        self.note(Final(stream, source, offset, tuple(identities), tuple(crcs) if crcs is not None else None, whole))

    def trimmed(self, stream: str, start_offset: int, time_s: float) -> None:
        """A trim is about to be asked for."""
        self.note(Trimmed(stream, start_offset, time_s))


class FileHistory(History):
    """Every `note` is one write to the kernel: what was noted is there after `kill -9` (not after a power loss)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = open_for_appending(path)
        cut_off_a_torn_line(self._descriptor)

    def note(self, *events: Event) -> None:
        """Append lines. Raises OSError."""
        write_all(self._descriptor, "".join(f"{to_line(event)}\n" for event in events))

    def close(self) -> None:
        """Nothing is noted any more."""
        os.close(self._descriptor)


def open_for_appending(path: Path) -> int:
    """A descriptor whose writes go to the end of the file, which is made when it is not there."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def cut_off_a_torn_line(descriptor: int) -> None:
    """What a killed client left behind its last whole line goes."""
    size_bytes = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, LINE_BYTES_MAX, max(0, size_bytes - LINE_BYTES_MAX))
    os.ftruncate(descriptor, size_bytes - len(tail) + tail.rfind(b"\n") + 1)


def write_all(descriptor: int, text: str) -> None:
    """All of it is with the kernel then."""
    data = text.encode()
    while data:
        data = data[os.write(descriptor, data) :]


def read_history(*paths: Path) -> Iterator[Event]:
    """The events of clients' files, one file after the other; a torn last line of a killed client is left out."""
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("\n"):
                    yield from_line(line)


def merged(histories: Iterable[History]) -> Iterator[Event]:
    """The events of several clients in memory."""
    for history in histories:
        yield from history.events
