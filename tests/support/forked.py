"""Members of test clusters begin by a fork of a process that has loaded their modules: a start costs a fifth of the CPU.

What holds:
- A forked member is what `python -m rangelog_cli pd|range-server|broker` is: a session and process group of its own, its log,
  its standard input, its environment, its lifeline, its exit code. `Popen`'s methods that the supervisor uses are there.
- Whatever else is started (another command, a prefix such as nsenter, a setting of the interpreter or of gRPC) has a process
  from scratch. `tests/integration/test_local*.py` start members by `rangelog local`, as users do.
- The process that forks has one thread and has made no connection; it ends when the session does (`stop`).
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from typing import IO, Any

from rangelog_cli.local.lifeline import LIFELINE_ENV

ROLES = ("pd", "range-server", "broker")
LOADED = ["tests.support.forked_modules"]
AT_START = ("PYTHON", "GRPC_", "LD_", "MALLOC_", "RANGELOG_PURE", "RANGELOG_DEBUG")
"""Variables that count while an interpreter or its modules begin: a fork comes too late for them."""
_LOCK = threading.Lock()
"""The library reads an exit code once, in `start` of any process too: two threads at once would lose it."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(LOADED)


def _run(arguments: list[str], env: dict[str, str], stdin: Any, log: Any, lifeline: Any) -> None:
    os.setsid()
    log_fd = log.detach()
    for source, target in ((stdin.detach(), 0), (log_fd, 1), (log_fd, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(env | {LIFELINE_ENV: str(lifeline.detach())})
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    sys.stdin = os.fdopen(0)
    sys.argv = ["rangelog", *arguments]
    from rangelog_cli.entry import main

    sys.exit(main())


class ForkedMember:
    """A member as `subprocess.Popen` would show it."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: IO[bytes], lifeline: int) -> None:
        read_end, write_end = os.pipe()
        self.stdin = os.fdopen(write_end, "wb", buffering=0)
        self.args = list(arguments)
        self._process = _CONTEXT.Process(
            target=_run, args=(self.args, dict(env), _Fd(read_end), _Fd(log.fileno()), _Fd(lifeline)), daemon=True
        )
        with _LOCK:
            self._process.start()
        os.close(read_end)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, once it has ended."""
        with _LOCK:
            return self._process.exitcode

    def poll(self) -> int | None:
        """Return the same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired."""
        wait([self._process.sentinel], timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code


class _Fd:
    """A file descriptor on its way to the member."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        return _Passed, (DupFd(self._number),)


class _Passed:
    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def detach(self) -> int:
        """Its number here."""
        number: int = self._handle.detach()
        return number


def spawn(command: Sequence[str], **options: Any) -> Any:
    """As `subprocess.Popen`, by a fork where the command is a member."""
    env = options["env"]
    changed = [name for name, value in env.items() if os.environ.get(name) != value and name != "PYTHONUNBUFFERED"]
    is_member = list(command[:3]) == [sys.executable, "-m", "rangelog_cli"] and command[3] in ROLES
    if not is_member or any(name.startswith(AT_START) for name in changed):
        return subprocess.Popen(command, **options)
    (lifeline,) = options["pass_fds"]
    return ForkedMember(command[3:], env, options["stdout"], lifeline)


def stop() -> None:
    """End the process that forks, if it was needed."""
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
