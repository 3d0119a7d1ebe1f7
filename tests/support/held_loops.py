"""No process of a cluster holds its event loop for long: checked at the end of each cluster that a test starts.

What holds:
- The processes say so themselves, in their logs, also those that were killed later (`metrics/loop_holds.py`).
- It is processor time of the loop's thread, so a machine that stands still adds nothing: what is found is a verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rangelog_server_common.metrics.loop_holds import LOGGED

HOLD_S_MAX = 2.0


def check_holds(logs: Path) -> None:
    """Raise AssertionError if a process of these logs held its event loop for too long."""
    found = long_holds(logs)
    assert not found, f"an event loop was held for {HOLD_S_MAX:g} s or longer:\n" + "\n".join(found)


def long_holds(logs: Path) -> list[str]:
    """Return the lines that say so."""
    return [f"{path.stem}: {line}" for path in sorted(logs.glob("*.log")) for line in _long_holds(path)]


@contextmanager
def checked() -> Iterator[None]:
    """Meanwhile a cluster is checked where its block ends, unless an error ends it."""
    from rangelog_cli.local.processes import Cluster

    leave = Cluster.__exit__

    def leaving(cluster: Cluster, kind: Any, error: Any, trace: Any) -> None:
        leave(cluster, kind, error, trace)
        if kind is None:
            check_holds(cluster.directory / "logs")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "__exit__", leaving)
        yield


def _long_holds(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as lines:
        for line in lines:
            if LOGGED in line and line.startswith("{") and json.loads(line).get("seconds", 0.0) >= HOLD_S_MAX:
                yield line.strip()
