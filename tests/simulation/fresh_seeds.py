"""Which seeds are run: those that no run has seen before follow from the commit that they judge; some are run twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

FRESH_FROM, FRESH_TO = 10**6, 10**12
"""They lie in between."""
TWICE_EVERY, TWICE_MIN, TWICE_MAX = 20, 3, 20
"""One seed in twenty is run again, at least three of them and at most twenty; their traces must be the same."""


def commit_id() -> str:
    """What is checked out here."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def fresh_seed(commit: str) -> int:
    """A first seed that belongs to a commit, far from those that are run by hand, and from those of other commits."""
    return FRESH_FROM + int(commit[:12], 16) % (FRESH_TO - FRESH_FROM)


def twice_of(seeds: list[int]) -> list[int]:
    """Return those of a run's seeds that are run again, spread over all of them."""
    count = min(len(seeds), TWICE_MAX, max(TWICE_MIN, len(seeds) // TWICE_EVERY))
    return [seeds[number * len(seeds) // count] for number in range(count)]
