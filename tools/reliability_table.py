"""Writes the table of docs/RELIABILITY.md from what the suites counted; no figure in it is typed by hand.

    python tools/reliability_table.py            take build/reliability/*.json, keep them in docs/reliability/, write the table
    python tools/reliability_table.py --stored   write the table again from docs/reliability/figures.json
    python tools/reliability_table.py --check    say whether the page has the table that the stored figures make

A suite that did not run is named as missing. Keys that are not known here are shown under their own name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COUNTED = ROOT / "build" / "reliability"
STORED = ROOT / "docs" / "reliability" / "figures.json"
PAGE = ROOT / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
Suites = Mapping[str, Mapping[str, Any]]


class Suite(NamedTuple):
    """How a suite is presented."""

    title: str
    command: str
    headlines: Mapping[str, str]
    """For the table on top: what is asked, and the answer with the figures' keys in braces."""


SUITES: Mapping[str, Suite] = {
    "simulation": Suite(
        "Simulated clusters",
        "make sim SEEDS={seeds}",
        {
            "Schedules simulated, virtual hours": "{seeds}; {virtual_hours} h",
            "Corner cases that the schedules reached": "{corner_cases_reached} of {corner_cases}",
            "Acked records checked there, lost": "{acked_records_checked}; {lost}",
            "Violations of any promise": "{violations}",
            "Seeds run twice with equal traces": "{seeds_run_twice_with_equal_traces}",
        },
    ),
    "raft_simulation": Suite(
        "Simulated placement drivers (Raft)",
        "make raft-sim",
        {"Schedules of the placement drivers' Raft, violations": "{seeds}; {violations}"},
    ),
    "mutants": Suite(
        "Wrong choices put in on purpose",
        "make mutants",
        {"Wrong choices caught": "{caught} of {of}"},
    ),
    "model": Suite(
        "Exhaustive model",
        "make model",
        {
            "States of the protocol model": "{states}",
            "Cases of the model that came out as expected": "{as_expected} of {cases}",
        },
    ),
    "chaos": Suite(
        "Real processes under faults",
        "make chaos",
        {
            "Kinds of faults, faults injected": "{kinds_count}; {faults}",
            "Acked records checked there": "{acked}",
            "… lost, duplicated, misordered": "{lost}; {duplicated}; {misordered}",
            "Longest time without an ack (p99 of the worst kind), to heal": "{gap_ms_p99_max} ms; {heal_s_max_max} s",
        },
    ),
    "crash_points": Suite(
        "Crash points",
        "make crash-points",
        {
            "Crash points, disks recovered from them": "{cuts}; {disks}",
            "… records lost, records served wrong": "{lost}; {served_wrong}",
        },
    ),
    "corruption": Suite(
        "Corruption",
        "make corruption",
        {
            "Bytes flipped, lengths cut": "{flips}; {cuts}",
            "… served wrong": "{served_wrong}",
        },
    ),
    "fuzz": Suite(
        "Fuzzing",
        "make fuzz",
        {"Bad inputs tried, crashes": "{inputs}; {crashes}"},
    ),
    "pd_histories": Suite(
        "Histories of the placement driver",
        "make pd-histories",
        {"Calls on the placement driver judged, violations": "{ok} answered, {refused} refused; {violations}"},
    ),
}


class _Shown(dict[str, Any]):
    """Figures as text; one that a suite did not count shows as a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def shown(value: Any) -> str:
    """One figure, as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def named(key: str) -> str:
    """A key as words."""
    return key.replace("_", " ")


def table(suites: Suites) -> str:
    """All of it: the answers on top, then a block per suite."""
    lines = ["| question | answer | made by |", "|---|---|---|"]
    for name, suite in SUITES.items():
        entry = suites.get(name)
        for question, answer in suite.headlines.items():
            told = answer.format_map(_texts(entry["figures"])) if entry else "**missing: did not run**"
            lines.append(f"| {question} | {told} | `{made_by(suite, entry)}` |")
    for name in [*SUITES, *sorted(set(suites) - set(SUITES))]:
        lines += ["", *block(name, suites.get(name))]
    return "\n".join(lines)


def made_by(suite: Suite, entry: Mapping[str, Any] | None) -> str:
    """The command, with the numbers that it was given."""
    return suite.command.format_map(_Shown(entry["figures"] if entry else {}))


def _texts(figures: Mapping[str, Any]) -> _Shown:
    """Figures for the answers; of what is counted by kind, the largest of each column as `<column>_max`."""
    texts = _Shown({key: shown(value) for key, value in figures.items() if not isinstance(value, Mapping)})
    for value in figures.values():
        if _is_table(value):
            rows = [row for row in value.values() if isinstance(row, Mapping)]
            for column in dict.fromkeys(name for row in rows for name in row):
                texts[f"{column}_max"] = shown(max(row[column] for row in rows if row.get(column) is not None))
    return texts


def block(name: str, entry: Mapping[str, Any] | None) -> Iterator[str]:
    """One suite: where its figures come from, then all of them."""
    suite = SUITES.get(name, Suite(named(name).capitalize(), "", {}))
    yield f"### {suite.title}"
    yield ""
    if entry is None:
        yield f"Missing: `{made_by(suite, None)}` did not run."
        return
    command = entry["command"].replace(".venv/bin/", "")
    yield f"`{command}` · commit `{entry['commit']}` · {entry['at']} · {entry['machine']}"
    flat = {key: value for key, value in entry["figures"].items() if not _is_table(value)}
    if flat:
        yield from ("", "| figure | |", "|---|---|")
        for key, value in flat.items():
            yield f"| {named(key)} | {_counts(value) if isinstance(value, Mapping) else shown(value)} |"
    for key, value in entry["figures"].items():
        if _is_table(value):
            yield from ("", *_rows(key, value))


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(each, Mapping) for each in value.values())


def _counts(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{named(key)} {shown(each)}" for key, each in value.items()) or "none"


def _rows(key: str, value: Mapping[str, Any]) -> Iterator[str]:
    """A figure that is counted by kind, with several columns."""
    columns = list(dict.fromkeys(name for row in value.values() for name in row))
    yield f"| {named(key)} | {' | '.join(named(name) for name in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for kind, row in value.items():
        yield f"| {named(kind)} | {' | '.join(shown(row.get(name)) for name in columns)} |"


def page_with(page: str, made: str) -> str:
    """The page with what stands between the marks replaced. Raises ValueError when it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def counted(folder: Path) -> dict[str, Any]:
    """What the suites left, by name."""
    entries = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {entry["suite"]: entry for entry in entries}


def stored(path: Path = STORED) -> dict[str, Any]:
    """What the last table was made from."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> int:
    """The exit code says whether the table could be made, or is in place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", action="store_true", help="from docs/reliability/figures.json")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the page is out of date")
    asked = parser.parse_args()
    if not (asked.stored or asked.check):
        suites = counted(COUNTED)
        if not suites:
            print(
                f"reliability: there is nothing in {COUNTED.relative_to(ROOT)}; run make reliability", file=sys.stderr
            )
            return 1
        STORED.parent.mkdir(parents=True, exist_ok=True)
        STORED.write_text(json.dumps(suites, indent=1, sort_keys=True) + "\n")
    suites = stored()
    page = PAGE.read_text()
    made = page_with(page, table(suites))
    if asked.check and made != page:
        print("reliability: the page is not what the stored figures make; run tools/reliability_table.py --stored")
        return 1
    PAGE.write_text(made)
    missing = [name for name in SUITES if name not in suites]
    print(f"reliability: suites={len(suites)} missing={','.join(missing) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
