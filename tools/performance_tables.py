"""Writes the tables of docs/PERFORMANCE.md from docs/performance/results.jsonl: no figure there is typed by hand.

tools/performance_tables.py --take     first copy the results of the last `make bench` from build/bench
tools/performance_tables.py            write the tables
tools/performance_tables.py --check    exit with 1 when the page is not what would be written
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from rangelog_bench.measurement import read_lines
from rangelog_bench.report import comparison, markdown

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "PERFORMANCE.md"
KEPT = ROOT / "docs" / "performance"
TAKEN = ROOT / "build" / "bench"
FILES = ("results.jsonl", "machine.json")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def tables(results: str, machine: str) -> str:
    """What stands between the markers."""
    found = read_lines(results)
    about: dict[str, str] = json.loads(machine)
    described = ", ".join(f"{name} {value}" if name != "processor" else value for name, value in about.items())
    return f"Measured: {described}.\n\n```\n{comparison(found)}\n```\n\n{markdown(found)}"


def kept_tables() -> str:
    """The tables of the results that are kept."""
    if not (KEPT / FILES[0]).exists():
        return "No results are kept: run `make bench`, then `tools/performance_tables.py --take`."
    return tables(*((KEPT / name).read_text() for name in FILES))


def with_tables(page: str, content: str) -> str:
    """The page with other tables. Raises ValueError when it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{content.strip()}\n{END}{after}"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="the tables of docs/PERFORMANCE.md")
    parser.add_argument("--take", action="store_true", help="copy the results of the last `make bench` first")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the page is out of date")
    given = parser.parse_args()
    if given.take:
        KEPT.mkdir(exist_ok=True)
        for name in FILES:
            shutil.copyfile(TAKEN / name, KEPT / name)
    page = PAGE.read_text()
    written = with_tables(page, kept_tables())
    if given.check:
        if written != page:
            print("docs/PERFORMANCE.md is out of date: run tools/performance_tables.py")
        return int(written != page)
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
