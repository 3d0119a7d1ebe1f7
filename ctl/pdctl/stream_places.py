"""Places in a stream in text form, and the offsets that they mean.

    17            an offset                     earliest, latest
    -10           ten records before the end    2026-01-31T12:00Z, @2026-01-31T12:00+01:00    a time, with its zone
    -1h, @-1h     an hour ago

What holds: a time without a zone is refused, since it is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import click

from pdctl.units import DURATION_UNITS_MS, quoted

if TYPE_CHECKING:
    from rangelog import Client

_COUNT = re.compile(r"-(\d{1,18})\Z", re.ASCII)
_AGO = re.compile(r"@?-(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)\Z", re.ASCII)
_AGO_MS_MAX = 10_000 * 365 * 86_400_000


class BeforeEnd(NamedTuple):
    """So many records before the end of the acked ones."""

    record_count: int


Place = int | str | datetime | BeforeEnd


class StreamPlace(click.ParamType["int | str | datetime | BeforeEnd"]):
    """A place; `words`: which of earliest and latest are places here."""

    name = "place"

    def __init__(
        self, words: tuple[str, ...] = ("earliest", "latest"), now: Callable[[], datetime] | None = None
    ) -> None:
        self._words = words
        self._now = now or (lambda: datetime.now(UTC))

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Parse."""
        if not isinstance(value, str):
            assert isinstance(value, int | datetime | BeforeEnd), "click converts what is converted already again"
            return value
        if value in self._words:
            return value
        if value.isascii() and value.isdigit() and len(value) < 19:
            return int(value)
        if (found := _COUNT.match(value)) is not None:
            return BeforeEnd(int(found[1]))
        if (found := _AGO.match(value)) is not None:
            ago_ms = float(found[1]) * DURATION_UNITS_MS[found[2]]
            if ago_ms < _AGO_MS_MAX:
                try:
                    return self._now() - timedelta(milliseconds=ago_ms)
                except OverflowError:
                    pass  # before the first year
        return self._time(value, param, ctx)

    def _time(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        text = value.removeprefix("@")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            words = "".join(f"{word}, " for word in self._words)
            self.fail(
                f"{quoted(value)} is neither an offset nor {words}-10 (records before the end), -1h (ago) or a time such as "
                "2026-01-31T12:00Z", param, ctx,
            )  # fmt: skip
        if moment.tzinfo is None:
            self.fail(no_zone(text), param, ctx)
        return moment


def no_zone(text: str) -> str:
    """Return what to say of a time without a zone."""
    whole = text if ":" in text else f"{text}T00:00"
    return f"{quoted(text)} has no time zone: write {whole}Z for UTC, or {whole}+01:00"


def start_of(place: Place) -> int | str | datetime:
    """Return where a reader begins, in its words: so it passes over what is trimmed meanwhile."""
    if isinstance(place, BeforeEnd):
        return -place.record_count if place.record_count else "latest"
    return place


async def end_of(client: Client, stream: str, place: Place, timeout_s: float) -> int:
    """Return the offset before which a reader stops: of a time that of the first record at or after it. As `start_of`."""
    if isinstance(place, BeforeEnd):
        return max(0, await client.end_offset(stream) - place.record_count)
    if isinstance(place, datetime):
        return await client.reader(stream, start=place, timeout_s=timeout_s).find_start()
    assert isinstance(place, int), "no word is an end"
    return place
