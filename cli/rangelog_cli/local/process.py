"""One child process under supervision.

What holds:
- A child is ready when its endpoint file names its pid, not before; a child that ends while starting is reported with its
  last log line. Waiting has a deadline.
- A child leads its own process group, so that Ctrl-C reaches only the supervisor and a kill reaches all its children.
- No child outlives the supervisor (`lifeline`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rangelog_cli.local.lifeline import LIFELINE_ENV, lifeline_fd
from rangelog_core.errors import InternalError, RequestTimeout, Unavailable

START_TIMEOUT_S = 60.0
"""A loaded machine starts seven Python processes slowly; a healthy one takes two seconds."""
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01
_LOG_BYTES_MAX = 16 * 1024 * 1024
_LAST_WORDS_BYTES = 16 * 1024
spawn = subprocess.Popen
"""How a child begins."""
_SAID_WHAT_TO_DO = re.compile(r"(?:rangelog|pd|placement-driver|range-server): (.+)")


@dataclass(frozen=True)
class Launch:
    """How a child is started, beside its arguments: a command that executes it, and its own environment."""

    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Process:
    """One child. `log_path` None: it writes where this process writes.

    `ready_file` is the endpoint file it writes when it listens (None: ready once it runs).

    A prefix must execute what follows it in its own place (as `nsenter --net=…` does): the pid stays the child's.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log_path: Path | None,
        ready_file: Path | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.starts = 0
        self._command = [*prefix, sys.executable, *arguments]
        self._ready_file = ready_file
        self.env = dict(env or {})
        """Environment variables beside this process's own, from the next start on."""
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The pid of the child that runs or ran last; raises InternalError before the first start."""
        return self._started().pid

    @property
    def where(self) -> str:
        """The log's path, as the end of a message; empty for a child that writes where this process writes."""
        return f" (log: {self.log_path})" if self.log_path is not None else ""

    @property
    def running(self) -> bool:
        """Whether the child was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the child runs; negative: the signal that ended it."""
        return self._started().poll()

    @property
    def stdin(self) -> IO[bytes]:
        """A pipe to the child's standard input."""
        pipe = self._started().stdin
        assert pipe is not None
        return pipe

    def start(self) -> None:
        """Start the child without waiting; `wait_ready` waits."""
        if self.running:
            raise InternalError(f"{self.name} runs already")
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        lifeline = lifeline_fd()
        env = os.environ | self.env | {LIFELINE_ENV: str(lifeline), "PYTHONUNBUFFERED": "1"}
        with self._open_log() as log:
            self._popen = spawn(
                self._command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lifeline,),
            )
        self.starts += 1

    @contextmanager
    def _open_log(self) -> Iterator[IO[bytes] | None]:
        """The log to append to; None: that of this process."""
        if self.log_path is None:
            yield None
            return
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_MAX:
            os.replace(self.log_path, self.log_path.with_suffix(".log.1"))
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            yield log

    def ready(self) -> bool:
        """Whether the child listens; raises Unavailable with its last log line when it has ended."""
        if self._started().poll() is not None:
            raise Unavailable(f"{self.name} ended with exit code {self.returncode}: {self.last_words()}")
        if self._ready_file is None:
            return True
        try:
            return bool(json.loads(self._ready_file.read_text())["pid"] == self.pid)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the child listens. Raises Unavailable when it ends, RequestTimeout when it takes too long."""
        wait_until(self.ready, timeout_s, f"{self.name} does not listen{self.where}")

    def wait(self, timeout_s: float) -> int:
        """Return the child's exit code; raises RequestTimeout when it still runs after the limit."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RequestTimeout(f"{self.name} still runs after {timeout_s:g} s{self.where}") from None

    def endpoint(self) -> dict[str, object]:
        """The content of the endpoint file: addresses, incarnation."""
        if self._ready_file is None:
            return {}
        found: dict[str, object] = json.loads(self._ready_file.read_text())
        return found

    def kill(self) -> None:
        """`kill -9` the child and all its children, and wait for their end. No effect on a child that has ended."""
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()
            self._close_stdin()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's process group (SIGSTOP and SIGCONT pause and continue it)."""
        if self.running:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self.pid, number)

    def request_stop(self) -> None:
        """Send SIGTERM; `finish` waits for the end."""
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
                os.kill(self.pid, signal.SIGTERM)

    def finish(self, deadline_s: float) -> None:
        """Wait for the end until the monotonic time `deadline_s`, then `kill -9` the child."""
        if self._popen is None:
            return
        try:
            self._popen.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_stdin()

    def last_words(self) -> str:
        """Return the last line of the child's log since its start, preferably an error message."""
        if self.log_path is None:
            return "see its lines"
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
                lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        for line in reversed(lines):
            found = _SAID_WHAT_TO_DO.match(line)
            if found:
                return found[1]
        return lines[-1] if lines else f"it said nothing (log: {self.log_path})"

    def _close_stdin(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            try:
                self._popen.stdin.close()
            except OSError:
                pass  # it ended before it read what was buffered

    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise InternalError(f"{self.name} was not started")
        return self._popen


def wait_until(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    """Poll `condition` until it holds; raises RequestTimeout with the text `otherwise` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RequestTimeout(f"not within {timeout_s:g} s: {otherwise}")
        time.sleep(_POLL_S)


def stop_all(processes: Iterable[Process], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Send SIGTERM to all, and kill those that run after `timeout_s`."""
    children = list(processes)
    for process in children:
        process.request_stop()
    deadline = time.monotonic() + timeout_s
    for process in children:
        process.finish(deadline)
