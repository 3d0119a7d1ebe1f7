"""`make corruption`: everything that is on a disk damaged in every byte, and an object store that lies."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.corruption.corruption import Results, figures, last_line, run
from tests.support.figures import publish


def main() -> int:
    """Run; a line per part; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every bit of every byte, every length")
    options = parser.parse_args()
    results = Results()
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), results, whole=options.all):
            print(line, flush=True)
    for problem in results.problems:
        print(f"  {problem}")
    counted = figures(results)
    publish("corruption", counted)
    print(last_line(counted))
    return 1 if results.problems else 0


if __name__ == "__main__":
    sys.exit(main())
