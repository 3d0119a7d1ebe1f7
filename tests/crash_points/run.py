"""`make crash-points`: the range server and the placement driver cut at every call, in the whole form or the short one."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.crash_points.crash_points import figures, last_line, short_form, whole_form
from tests.crash_points.crash_tally import Tally
from tests.support.figures import publish

SEEDS_DEFAULT = 10


def main() -> int:
    """Run; a line per workload; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="the whole form")
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS") or SEEDS_DEFAULT))
    options = parser.parse_args()
    runs: dict[str, Tally] = {}
    for name, run in whole_form(options.seeds) if options.all else short_form():
        began = time.monotonic()
        tally = runs[name] = run()
        counts = f"cuts={tally.cuts.total()} second_cuts={tally.second_cuts} disks={tally.recoveries}"
        print(f"{name}: {counts} problems={len(tally.problems)} in {time.monotonic() - began:.1f} s", flush=True)
        for problem in tally.problems:
            print(f"  {problem}")
    counted = figures(runs)
    publish("crash_points", counted)
    print(last_line(counted))
    return 1 if any(tally.problems for tally in runs.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
