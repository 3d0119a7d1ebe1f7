"""A wall clock that stands still until a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rangelog_core.record import ms_of

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """The wall clock of a FakeCluster: what records and streams are dated by.

    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    cluster = FakeCluster(clock=clock)
    …
    clock.advance(timedelta(hours=1))  # records that are appended from here on are an hour younger
    """

    def __init__(self, now: datetime = START) -> None:
        """`now`: the time it shows until `advance` is called. Raises InvalidArgument for a time that UTC does not have."""
        self._now_ms = ms_of(now)

    @property
    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The time in UTC, to the millisecond."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: timedelta | float) -> None:
        """Move the clock by a timedelta or a number of seconds, back if it is negative."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        self._now_ms += round(seconds * 1000)
