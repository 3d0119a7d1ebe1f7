"""Counters of a placement driver's own work, for metrics. Kept by the driver, where the work is done."""

from __future__ import annotations

from rangelog_server_common.metrics.tally import DurationTally, count_by

OK = "OK"


class DriverCounts:
    """The counters of one process."""

    def __init__(self) -> None:
        self.commands: dict[str, dict[str, int]] = {}
        """By action, then by result: OK, or the error's code."""
        self.command_durations = DurationTally()
        """From the proposal to its result; failures count as well."""
        self.round_durations = DurationTally()
        """Of the leader's rounds of reconciling."""
        self.leading_count = 0
        """How often this member began to lead."""

    def command_ended(self, action: str, code: str, seconds: float) -> None:
        """Count a command of either a client or the leader itself."""
        self.command_durations.observe(seconds)
        count_by(self.commands.setdefault(action, {}), code)
