"""What is the matter with the clusters that a test runs on: for the message of a wait that ran out (`waiting.py`).

What holds:
- Of each registered cluster it is told which processes run, and what `pdctl doctor cluster` finds.
- The examination has a time limit and raises nothing: what fails of it is told in its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rangelog_cli.local.processes import Cluster

_LIMIT_S = 15.0
_DOCTOR = (sys.executable, "-m", "pdctl", "--timeout", "5", "doctor", "cluster")

_clusters: list[Cluster] = []


@contextmanager
def registered(cluster: Cluster) -> Iterator[None]:
    """Meanwhile the cluster is one that `findings` tells of."""
    _clusters.append(cluster)
    try:
        yield
    finally:
        _clusters.remove(cluster)


def findings() -> str:
    """Return what is the matter with the registered clusters, some lines each."""
    return "".join(f"\n{_examined(cluster)}" for cluster in list(_clusters))


def _examined(cluster: Cluster) -> str:
    told = str(cluster.directory)
    try:
        running = [name for name, each in cluster.members.items() if each.running]
        stopped = [name for name in cluster.members if name not in running]
        told += f": {', '.join(running) or 'no process'} running; {', '.join(stopped) or 'no process'} stopped"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RANGELOG_PD")}
        environment["RANGELOG_PD"] = cluster.connect_string
        if cluster.tls is not None:
            environment |= {f"RANGELOG_TLS_{name.upper()}": path for name, path in asdict(cluster.tls).items()}
        run = subprocess.run(_DOCTOR, env=environment, capture_output=True, timeout=_LIMIT_S, check=False)
        return f"{told}\n{(run.stdout + run.stderr).decode(errors='replace').strip()}"
    except Exception as error:
        return f"{told}; its examination fails: {error!r}"
