"""Entries of several processes' logs in one order, and as text. No I/O.

What holds: entries of one process stay in their order; those of several are in order of their clocks. Text has a line for each
entry, without control characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pdctl.output import printable

_KNOWN_KEYS = ("timestamp", "level", "role", "process", "logger", "event")
_LEVEL_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry. `process`: what the placement driver calls it; `fields`: the JSON object of its line."""

    wall_ms: int
    process: str
    number: int
    fields: Mapping[str, Any]


def logged(process: str, number: int, wall_ms: int, line: str) -> Logged:
    """Return an entry from its line; one that is no JSON object is an event by itself."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    return Logged(wall_ms, process, number, fields if isinstance(fields, dict) else {"event": line})


def merged(entries: Iterable[Logged]) -> list[Logged]:
    """Return entries by time. A clock that was set back does not change the order within a process."""
    latest: dict[str, int] = {}
    timed = []
    for each in sorted(entries, key=lambda each: (each.process, each.number)):
        latest[each.process] = max(each.wall_ms, latest.get(each.process, 0))
        timed.append((latest[each.process], each.process, each.number, each))
    return [each for _, _, _, each in sorted(timed, key=lambda row: row[:3])]


def as_text(entry: Logged) -> str:
    """Return "TIME LEVEL PROCESS EVENT key=value …" on one line."""
    fields = entry.fields
    level = str(fields.get("level", "info"))
    said = " ".join(f"{key}={_value(each)}" for key, each in fields.items() if key not in _KNOWN_KEYS)
    rest = " ".join(str(each) for each in (entry.process, fields.get("event", ""), said) if each)
    return printable(str(fields.get("timestamp", "-"))) + f" {printable(level):<{_LEVEL_WIDTH}} " + printable(rest)


def as_json(entry: Logged) -> str:
    """Return the fields as one line of JSON."""
    return json.dumps(entry.fields, ensure_ascii=False).encode(errors="backslashreplace").decode()


def as_yaml(entry: Logged) -> str:
    """Return the fields as one document of YAML."""
    import yaml

    text: str = yaml.safe_dump(json.loads(as_json(entry)), sort_keys=False, allow_unicode=True, explicit_start=True)
    return text.rstrip("\n")


def has_text(entry: Logged, text: str) -> bool:
    """Whether the event, or one of the fields, has this text, whatever its case."""
    wanted = text.casefold()
    return any(wanted in f"{key}={_value(each)}".casefold() for key, each in entry.fields.items())


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False) if " " in value or not value else value
