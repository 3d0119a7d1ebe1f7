"""tests/chance.toml: the tests that failed by chance, few and none for long."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS_MAX = 12
AGE_MAX = timedelta(days=14)


def faults(rows: list[dict[str, Any]], today: date) -> list[str]:
    """What is wrong with these rows on that day."""
    found = [f"{len(rows)} rows, more than {ROWS_MAX}: mend a cause first"] if len(rows) > ROWS_MAX else []
    for row in rows:
        test = row.get("test", "")
        file, _, name = test.partition("::")
        if not (ROOT / file).is_file() or f"def {name.partition('[')[0]}(" not in (ROOT / file).read_text():
            found.append(f"{test}: no such test")
        if not str(row.get("cause", "")).strip():
            found.append(f"{test}: no cause")
        since, until = row.get("since"), row.get("until")
        if type(since) is not date or type(until) is not date or not since <= until <= since + AGE_MAX:
            found.append(f"{test}: since and until are dates, {AGE_MAX.days} days apart at most")
        elif not since <= today <= until:
            found.append(f"{test}: its time was over on {until}: mend the cause")
    return found


def test_the_rows_are_few_and_young() -> None:
    """Each names its test, its cause, and a day in the next two weeks."""
    rows = tomllib.loads((ROOT / "tests" / "chance.toml").read_text()).get("chance", [])
    assert not (found := faults(rows, datetime.now(UTC).date())), found


ROW = {
    "test": f"tests/tidy/{Path(__file__).name}::test_the_rows_are_few_and_young",
    "cause": "a wait of 20 s for an election",
    "since": date(2026, 11, 1),
    "until": date(2026, 11, 15),
}


def test_a_good_row_passes() -> None:
    """On its first and on its last day."""
    assert faults([ROW], ROW["since"]) == faults([ROW] * ROWS_MAX, ROW["until"]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "today", "said"),
    [
        ({}, date(2026, 11, 16), "its time was over on 2026-11-15"),
        ({"until": date(2026, 11, 16)}, date(2026, 11, 2), "14 days apart at most"),
        ({"until": "soon"}, date(2026, 11, 2), "are dates"),
        ({"cause": " "}, date(2026, 11, 2), "no cause"),
        ({"test": "tests/tidy/test_chance.py::test_gone"}, date(2026, 11, 2), "no such test"),
        ({"test": "tests/gone.py::test_it"}, date(2026, 11, 2), "no such test"),
    ],
)
def test_a_bad_row_fails(changed: dict[str, object], today: date, said: str) -> None:
    """A row past its date, without a cause or a test."""
    (fault,) = faults([ROW | changed], today)
    assert said in fault


def test_a_thirteenth_row_fails() -> None:
    """Whoever needs one more mends a cause first."""
    assert "13 rows" in faults([ROW] * (ROWS_MAX + 1), date(2026, 11, 2))[0]
