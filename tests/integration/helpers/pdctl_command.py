"""pdctl as a user types it, in a process of its own, on one cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from rangelog_cli.local.processes import Cluster
from tests.support.forked import run_pdctl

COMMAND = [sys.executable, "-m", "pdctl"]


def _environment(cluster: Cluster | None = None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RANGELOG_")}
    environment |= {"XDG_CONFIG_HOME": "/nonexistent", "TERM": "xterm", "COLUMNS": "200"}
    return environment | ({"RANGELOG_PD": cluster.connect_string} if cluster is not None else {})


class Pdctl:
    """Runs pdctl on one cluster."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.environment = _environment(cluster)

    def __call__(self, *arguments: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:  # noqa: A002
        """Run to the end."""
        return run_pdctl(arguments, env=self.environment, given=input)

    def ok(self, *arguments: str, input: bytes = b"") -> str:  # noqa: A002
        """Run, must succeed and complain of nothing; returns what it printed."""
        run = self(*arguments, input=input)
        assert (run.returncode, run.stderr) == (0, b""), (arguments, run)
        return run.stdout.decode()

    def json(self, *arguments: str) -> Any:
        """Run with -o json, must succeed."""
        return json.loads(self.ok(*arguments, "-o", "json"))

    def objects_of(self, stream: str, start_offset: int, end_offset: int) -> list[dict[str, Any]]:
        """Return a stream's objects if they lie end to end from one offset to the other, else none: servers upload ranges in
        any order."""
        found: list[dict[str, Any]] = self.json("object", "list", stream)
        borders = [start_offset, *(each["end_offset"] for each in found)]
        return found if [*(each["start_offset"] for each in found), end_offset] == borders else []

    def fails(self, exit_code: int, *arguments: str, input: bytes = b"") -> str:  # noqa: A002
        """Run, must fail with that code and one line on stderr."""
        run = self(*arguments, input=input)
        said = run.stderr.decode()
        assert (run.returncode, run.stdout) == (exit_code, b""), (arguments, run)
        assert said.startswith("pdctl: ") and said.count("\n") == 1, said
        return said
