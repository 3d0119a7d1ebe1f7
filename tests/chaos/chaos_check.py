"""Judges a run with the log checker of tests/support, and counts what only this suite knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.chaos import chaos_history
from tests.chaos.chaos_load import Client, Load
from tests.chaos.chaos_reading import ReadBack
from tests.support.history import Ended, Event, Retained, read_history
from tests.support.log_checker import check_log
from tests.support.log_report import Report


@dataclass
class Verdict:
    """What the log checker says, and more."""

    report: Report
    acks_ns: dict[str, list[int]]
    """When acks came, by stream."""
    takeovers: int
    unexpected_stops: int
    """A writer ended for another reason than a fence, and not one that passes."""
    late_appends: int
    """Longer than a client waits without complaint."""
    reader_errors: int
    """Readers that gave up; one may, while no copy can be reached."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return self.report.clean and not (self.unexpected_stops or self.late_appends)

    def figures(self) -> dict[str, int]:
        """All counts."""
        counts = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return self.report.figures() | counts


def judge(load: Load, back: dict[str, ReadBack]) -> Verdict:
    """Everything that clients noted, and what was read at the end, must fit together."""
    acks_ns: dict[str, list[int]] = {stream: [] for stream in back}
    noted = [_noting_acks(read_history(each.history), acks_ns) for each in load.clients if each.history.exists()]
    retained = [Retained(plan.name, plan.retention_s) for plan in load.streams if plan.retention_s]
    report = check_log(*noted, retained, load.events, *[iter(each.finals) for each in back.values()])
    for times in acks_ns.values():
        times.sort()
    writers, readers = _pulses(load.writers + load.side_writers), _pulses(load.readers + load.side_readers)
    return Verdict(
        report,
        acks_ns,
        takeovers=load.takeovers,
        unexpected_stops=sum(each.errors for each in writers),
        late_appends=sum(each.waits for each in writers),
        reader_errors=sum(each.errors for each in readers),
    )


def _noting_acks(events: Iterable[Event], acks_ns: dict[str, list[int]]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Ended) and event.outcome == "ok" and event.stream in acks_ns:
            acks_ns[event.stream].append(int(event.time_s * 1e9))
        yield event


def _pulses(clients: Iterable[Client]) -> list[chaos_history.Pulse]:
    return [each.pulse for each in clients]
