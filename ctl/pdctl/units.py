"""Sizes and durations in text form: 64MiB, 1.5GB, 7d, 90s, never."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

import click

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip
DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_MAX = 1 << 62
_DURATION_MS_MAX = 10_000 * 365 * 86_400_000  # ten thousand years
_SHOWN_LENGTH_MAX = 60
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\Z")


class Size(click.ParamType[int]):
    """A size in bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse."""
        found = _NUMBER.match(str(value).strip().lower())
        size = float(found[1]) * _SIZES.get(found[2], math.inf) if found is not None else math.inf
        if not size < _SIZE_MAX:
            self.fail(f"{quoted(value)} is not a size: write for example 64MiB or 1GB", param, ctx)
        return int(size)


class Duration(click.ParamType[int]):
    """A duration in ms; with `never`, that word is -1; with `bare_seconds` a number without a unit is one of seconds."""

    name = "duration"

    def __init__(self, *, never: bool = False, bare_seconds: bool = False) -> None:
        self._never = never
        self._bare_seconds = bare_seconds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse."""
        text = str(value).strip().lower()
        if self._never and text == "never":
            return -1
        found = _NUMBER.match(text)
        if found is not None and not found[2]:
            if not self._bare_seconds:
                hint = f"write {quoted(text)[1:-1]}s for seconds, or for example 12h or 7d"
                self.fail(f"{quoted(value)} has no unit: {hint}", param, ctx)
            found = _NUMBER.match(f"{text}s")
        duration_ms = float(found[1]) * DURATION_UNITS_MS.get(found[2], math.inf) if found is not None else math.inf
        if not duration_ms < _DURATION_MS_MAX:
            also = ", or never" if self._never else ""
            self.fail(f"{quoted(value)} is not a duration: write for example 90s, 12h or 7d{also}", param, ctx)
        return int(duration_ms)


def show_count(count: int, noun: str) -> str:
    """1 record, 2 records."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show_bytes(count: int) -> str:
    """12.3 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def show_ms(duration_ms: int, zero: str) -> str:
    """7d, 90s; -1 is never."""
    if duration_ms < 0:
        return "never"
    if duration_ms == 0:
        return zero
    for unit in ("d", "h", "m", "s"):
        if duration_ms % DURATION_UNITS_MS[unit] == 0:
            return f"{duration_ms // DURATION_UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def show_age(age_ms: int) -> str:
    """0s, 59s, 12m, 3h, 5d: in the largest unit that fits."""
    unit = next((unit for unit in ("d", "h", "m") if age_ms >= DURATION_UNITS_MS[unit]), "s")
    return f"{max(0, age_ms) // DURATION_UNITS_MS[unit]}{unit}"


def show_time(wall_ms: int) -> str:
    """An ISO time in UTC, or a dash; the bare number where no calendar reaches."""
    if not wall_ms:
        return "-"
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"


def quoted(value: object) -> str:
    """Return what was typed in quotes, shortened, for a message."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…")
