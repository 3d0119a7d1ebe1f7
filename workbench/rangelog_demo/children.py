"""The demo's child processes: how they are started and stand by, and the status file by which they report.

A child loads what it needs, writes "ready" to its status file and waits for a line on standard input: its start-up
takes no time from what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from rangelog_cli.local.processes import Process, wait_until

_READY_TIMEOUT_S = 60.0


class DemoChild:
    """One child process, and its status file, which is given to it as `--status`."""

    def __init__(self, name: str, directory: Path, module: str, arguments: Sequence[str]) -> None:
        self._status = directory / f"{name}.status"
        command = ["-m", module, "--status", str(self._status), *arguments]
        self.process = Process(name, command, log_path=directory / "logs" / f"{name}.log")

    @property
    def name(self) -> str:
        """The name of the process."""
        return self.process.name

    def start(self) -> None:
        """Start it, without waiting."""
        self.process.start()

    def wait_ready(self) -> None:
        """Return once it stands by. Raises Unavailable when it ends, RequestTimeout when it takes too long."""
        wait_until(self._stands_by, _READY_TIMEOUT_S, f"{self.name} is not ready: see {self.process.log_path}")

    def prepare(self) -> None:
        """Start it and wait until it stands by."""
        self.start()
        self.wait_ready()

    def go(self) -> None:
        """Let it begin its work."""
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def status(self) -> dict[str, object]:
        """Its last status; empty before the first."""
        try:
            found: dict[str, object] = json.loads(self._status.read_text())
        except FileNotFoundError:
            return {}
        return found

    def _stands_by(self) -> bool:
        return self.process.ready() and self.status().get("state") == "ready"


async def stand_by(status: Path) -> None:
    """In the child: report that it is ready, and wait until it may begin."""
    write_status(status, state="ready")
    await asyncio.to_thread(sys.stdin.readline)


def write_status(path: Path, **fields: object) -> None:
    """In the child: replace the status file."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(fields | {"pid": os.getpid()}))
    os.replace(fresh, path)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """In the child: run its work on an event loop, uvloop's where it is installed."""
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    run(work)
