"""strace as an injector of faults into a running process."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO

from tests.support.waiting import WaitRanOut, eventually

ATTACH_TIMEOUT_S = 10.0


class Tracer:
    """strace on all threads of a running process, with a fault injected into a system call."""

    def __init__(self, pid: int, inject: str, log_path: Path) -> None:
        self._log_path = log_path
        self._log: IO[bytes] = log_path.open("wb")
        call = inject.partition(":")[0]
        command = ["strace", "-f", "-q", "-e", f"trace={call}", "-e", f"inject={inject}", "-e", "signal=none"]
        self._popen = subprocess.Popen([*command, "-p", str(pid)], stderr=self._log, stdin=subprocess.DEVNULL)
        try:
            eventually(
                lambda: _is_traced(pid) or self._popen.poll() is not None, "strace does not attach", ATTACH_TIMEOUT_S
            )
        except WaitRanOut:
            self.close()
            raise

    @property
    def injected(self) -> bool:
        """Whether it has happened."""
        return b"(INJECTED)" in self._log_path.read_bytes()

    def close(self) -> None:
        """Let the process go. Idempotent."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGINT)
            try:
                self._popen.wait(5)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        self._log.close()


def _is_traced(pid: int) -> bool:
    """Whether every thread of a process has a tracer."""
    try:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return False
    return bool(states) and all("TracerPid:\t0\n" not in state for state in states)


def can_trace() -> bool:
    """Whether strace is there and may attach."""
    if shutil.which("strace") is None:
        return False
    child = subprocess.Popen(["sleep", "30"])
    try:
        tracer = subprocess.Popen(["strace", "-q", "-p", str(child.pid)], stderr=subprocess.DEVNULL)
        try:
            eventually(
                lambda: _is_traced(child.pid) or tracer.poll() is not None, "strace does not attach", ATTACH_TIMEOUT_S
            )
            return tracer.poll() is None
        except WaitRanOut:
            return False
        finally:
            tracer.kill()
            tracer.wait()
    finally:
        child.kill()
        child.wait()
