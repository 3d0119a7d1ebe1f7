"""Search every case of the models, right and wrong; see docs/RELIABILITY.md for what came of it.

    python tests/model/check.py [--quick] [--case NAME] [--trace]

A line a case; the last says how many came out as expected. Exit code 1 when one did not.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.model.case import Case
from tests.model.model_cases import CASES
from tests.model.search import Result
from tests.support.figures import publish

FIGURES = (
    "cases", "as_expected", "states", "transitions", "right_instances", "wrong_choices", "wrong_choices_found", "bounds"
)  # fmt: skip


def report(case: Case, result: Result, took_s: float, *, trace: bool) -> bool:
    """Print one line, and the way to the finding where it is asked for or unexpected; return whether it is expected."""
    as_expected = result.finding == case.expect
    print(
        f"{'ok  ' if as_expected else 'FAIL'} {case.model:11} {case.name:34} {result.finding or 'nothing broken':17}"
        f" states {result.states:>9,} transitions {result.transitions:>10,} depth {result.depth:>3} {took_s:6.1f} s"
        f"  {case.why}",
        flush=True,
    )
    if trace or not as_expected:
        for number, step in enumerate(result.trace, 1):
            print(f"       {number:2}. {step}")
    return as_expected


def check(cases: list[Case], *, trace: bool = False) -> dict[str, int]:
    """Search these cases; return the figures."""
    figures = dict.fromkeys(FIGURES, 0)
    for case in cases:
        began = time.monotonic()
        result = case.search()
        good = report(case, result, time.monotonic() - began, trace=trace)
        figures["cases"] += 1
        figures["as_expected"] += good
        figures["states"] += result.states
        figures["transitions"] += result.transitions
        kind = "bounds" if case.bound else "wrong_choices" if case.expect else "right_instances"
        figures[kind] += 1
        figures["wrong_choices_found"] += kind == "wrong_choices" and good
    return figures


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Protocol models, searched exhaustively.")
    parser.add_argument("--quick", action="store_true", help="without the large instances")
    parser.add_argument("--case", help="this one only")
    parser.add_argument("--trace", action="store_true", help="how each finding comes about, one step a line")
    asked = parser.parse_args()
    cases = [case for case in CASES if (case.name == asked.case if asked.case else not (asked.quick and case.large))]
    if not cases:
        parser.error(f"there is no case {asked.case}")
    figures = check(cases, trace=asked.trace)
    if not asked.case:
        publish("model", {**figures, "quick": int(asked.quick)})
    print("model: " + " ".join(f"{name}={figures[name]}" for name in ("cases", "as_expected", "states", "transitions")))
    return figures["as_expected"] != figures["cases"]


if __name__ == "__main__":
    sys.exit(main())
