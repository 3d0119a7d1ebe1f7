"""What a reader process notes for the checkers: what it saw, where it was told the stream ends, what it was refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rangelog_core.errors import OffsetOutOfRange, OffsetTrimmed, RangelogError
from tests.chaos import chaos_history
from tests.support.history import Bounded, EndTold, FileHistory, Refused, Started


class Noting:
    """Writes down what is read. `stream` is its name in the history; `reader` is the process, its passes begin with it."""

    def __init__(self, stream: str, reader: str, notes: FileHistory, pulse: chaos_history.PulseFile) -> None:
        self.stream = stream
        self.reader = reader
        self._notes = notes
        self.pulse = pulse

    def saw(self, name: str, source: str, records: Sequence[Any]) -> None:
        """One poll."""
        self.saw_values(name, source, [record.offset for record in records], [record.value for record in records])

    def saw_values(self, name: str, source: str, offsets: Sequence[int], values: Sequence[bytes]) -> None:
        """One poll. Records that do not follow each other are noted one by one, for the checker to see."""
        now, start = time.monotonic(), offsets[0]
        found = [chaos_history.identity_of(value) for value in values]
        if all(offset == start + index for index, offset in enumerate(offsets)):
            self._notes.saw(self.stream, name, start, found, now, source)
        else:
            for offset, each in zip(offsets, found, strict=True):
                self._notes.saw(self.stream, name, offset, [each], now, source)
        last = self.pulse.last
        self.pulse.beat(records=last.records + len(values), offset=offsets[-1] + 1, last_ns=time.monotonic_ns())

    def end_told(self, name: str, offset: int, invoked_s: float, *, exact: bool) -> None:
        """Somebody asked where the stream ends, or read up to there."""
        self._notes.note(EndTold(self.stream, name, offset, invoked_s, time.monotonic(), exact))

    def bounded(self, name: str, start: int, end: int) -> None:
        """A pass with an end ended without an error."""
        self._notes.note(Bounded(self.stream, name, start, end, time.monotonic()))

    def started(self, name: str, timestamp_ms: int, offset: int, invoked_s: float) -> None:
        """A start by time began somewhere."""
        self._notes.note(Started(self.stream, name, timestamp_ms, offset, invoked_s, time.monotonic()))

    def refused(self, name: str, offset: int, invoked_s: float, error: OffsetOutOfRange) -> None:
        """There is no such offset, a reader was told."""
        trimmed = error.offset if isinstance(error, OffsetTrimmed) else None
        self._notes.note(Refused(self.stream, name, offset, invoked_s, time.monotonic(), trimmed))

    def failed(self, text: str, error: RangelogError) -> None:
        """A reader gave up."""
        print(f"{text}: {error!r}", flush=True)
        self.pulse.beat(errors=self.pulse.last.errors + 1)
