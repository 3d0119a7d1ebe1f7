"""A Spark driver as a process of its own that can be killed with all that belongs to it, or only its workers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class Driver:
    """One run of a driver, in a process group of its own; what it says is added to a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> None:
        """Kill the driver, its JVM and their Python workers."""
        workers = self._workers()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_workers(self) -> int:
        """Kill the processes in which tasks and commits run; return how many."""
        workers = self._workers()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(workers)

    def _workers(self) -> list[int]:
        """The Python processes below the JVM; they are in process groups of their own."""
        parents: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        workers: list[int] = []
        for pid in found:
            with suppress(OSError):
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    workers.append(pid)
        return workers
