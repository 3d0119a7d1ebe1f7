"""One stream from its creation to its deletion, and what clients were told of it.

A name may have several lives; each has a label of its own, and every record's value begins with its identity, which carries
the label: who reads a record of a namesake is found out by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.support.history import (
    Bounded,
    Deleted,
    Ended,
    EndTold,
    Event,
    Final,
    History,
    Invoked,
    Refused,
    Retained,
    Started,
)
from tests.support.log_checker import check_log


@dataclass
class Append:
    """One record, and what became of it."""

    identity: bytes
    writer: str
    sequence: int
    epoch: int
    invoked: float
    timestamp_ms: int | None = None
    returned: float = 0.0
    offset: int = -1
    outcome: Literal["ok", "failed", "unknown"] = "unknown"
    promised: int = -1
    """The offset that its writer would give it; -1: nobody asked."""


@dataclass
class Life:
    """See the module. `deleting` from the moment in which its deletion is asked for."""

    name: str
    label: str
    stream_id: int
    appends: list[Append] = field(default_factory=list)
    history: History = field(default_factory=History)
    """What readers saw and were told."""
    acked: dict[int, bytes] = field(default_factory=dict)
    opened: list[tuple[int, int]] = field(default_factory=list)
    """Of each writer that was opened: its epoch, and where the stream ended then."""
    stamps_ms: list[int] = field(default_factory=list)
    """Timestamps of acked records."""
    trims: list[tuple[int, float]] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    """Readers that follow, and where they are."""
    deleting: bool = False
    deleted: bool = False
    own_fields: bool = False
    """Its batches have header fields of their own, not those that the simulation draws."""

    @property
    def trimmed(self) -> int:
        """The highest offset that anybody asked to trim at."""
        return max((offset for offset, _ in self.trims), default=0)

    def identity_of(self, writer: str, sequence: int) -> bytes:
        """Of one record."""
        return f"{self.label}/{writer}-{sequence}".encode()

    # ---- what clients note

    def saw(self, reader: str, offset: int, identities: Sequence[bytes], time_s: float) -> None:
        """A reader was given these."""
        self.history.saw(self.label, reader, offset, identities, time_s)

    def told_end(self, reader: str, offset: int, invoked_s: float, time_s: float, *, exact: bool) -> None:
        """Somebody was told where the stream ends."""
        self.history.note(EndTold(self.label, reader, offset, invoked_s, time_s, exact))

    def started(self, reader: str, timestamp_ms: int, offset: int, invoked_s: float, time_s: float) -> None:
        """A start by time began there."""
        self.history.note(Started(self.label, reader, timestamp_ms, offset, invoked_s, time_s))

    def bounded(self, reader: str, start: int, end: int, time_s: float) -> None:
        """A reader with an end ended without an error."""
        self.history.note(Bounded(self.label, reader, start, end, time_s))

    def refused(self, reader: str, offset: int, invoked_s: float, time_s: float, trimmed: int | None) -> None:
        """A reader was told that there is no such offset."""
        self.history.note(Refused(self.label, reader, offset, invoked_s, time_s, trimmed))

    def gone(self, time_s: float, *, certain: bool) -> None:
        """Its deletion is done."""
        self.deleting = self.deleted = True
        self.history.note(Deleted(self.label, time_s, certain))

    def retained(self, retention_s: float) -> None:
        """It keeps records for so long."""
        self.history.note(Retained(self.label, retention_s))

    # ---- judging

    def check(self, final: list[tuple[int, bytes]] | None, time_s: float) -> None:
        """Nothing acked is lost, nobody saw or was told what is not so. See log_checker. `final`: None of a deleted one."""
        for offset, at_s in self.trims:
            self.history.trimmed(self.label, offset, at_s)
        end: list[Event] = []
        if final is not None:
            first = final[0][0] if final else max(self.trimmed, max(self.acked, default=-1) + 1)
            assert [offset for offset, _ in final] == list(range(first, first + len(final))), "the last read has a hole"
            self._check_promises({identity: offset for offset, identity in final})
            end.append(Final(self.label, "reader", first, tuple(identity for _, identity in final), time_s=time_s))
        report = check_log(*self._writers(), self.history.events, end)
        assert report.clean, f"{report.summary()}: {report.violations[0]}"

    def _check_promises(self, found: dict[bytes, int]) -> None:
        """What is in the log is where it was promised, acked or not, and no later writer began below it."""
        for each in self.appends:
            offset = found.get(each.identity)
            if offset is None or each.promised < 0:
                continue
            assert offset == each.promised, f"{each.identity!r} was promised {each.promised} and is at {offset}"
            for epoch, began in self.opened:
                assert epoch <= each.epoch or began > offset, (
                    f"the writer of epoch {epoch} was told the end {began}: {each.identity!r} came to be at {offset} later"
                )

    def _writers(self) -> list[list[Event]]:
        writers: dict[str, list[tuple[float, int, Event]]] = {}
        for number, each in enumerate(self.appends):
            events = writers.setdefault(each.writer, [])
            stamp = None if each.timestamp_ms is None else (each.timestamp_ms,)
            identities = (each.identity,)
            invoked = Invoked(self.label, each.writer, each.epoch, each.sequence, identities, each.invoked, None, stamp)
            events.append((each.invoked, number, invoked))
            if each.outcome != "unknown":
                offset = each.offset if each.outcome == "ok" else None
                ended = Ended(self.label, each.writer, each.sequence, 1, each.outcome, each.returned, offset)
                events.append((each.returned, number, ended))
        return [[event for _, _, event in sorted(events, key=lambda one: one[:2])] for events in writers.values()]
