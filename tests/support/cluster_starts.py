"""How often a run of pytest started a cluster: the line `clusters: starts=37` of its summary.

What holds:
- A start is one of all members of a cluster, by `Cluster.start` while none runs or by `rangelog local` (`count`). A member that
  is started again is none, nor is what a second try starts.
- The starts of xdist's workers add up. A run without a start has no line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_KEY = "cluster_starts"


class Starts:
    """The plugin of one process: its own starts, and those that its workers had when they ended."""

    def __init__(self) -> None:
        self.total = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker counted; one that was killed told nothing."""
        self.total += getattr(node, "workeroutput", {}).get(_KEY, 0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker: hand the count over."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = self.total

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the line."""
        if self.total:
            terminalreporter.write_line(f"clusters: starts={self.total}")


_starts = Starts()


def count() -> None:
    """A cluster is being started."""
    _starts.total += 1


@contextmanager
def counted() -> Iterator[None]:
    """Meanwhile `Cluster.start` counts."""
    from rangelog_cli.local.processes import Cluster

    start = Cluster.start

    def starting(cluster: Cluster, *arguments: Any, **options: Any) -> None:
        if not any(each.running for each in cluster.members.values()):
            count()
        start(cluster, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "start", starting)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Register it."""
    config.pluginmanager.register(_starts, "cluster-starts")
