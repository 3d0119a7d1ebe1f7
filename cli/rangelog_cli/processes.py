"""Child processes, and a whole cluster of them: what `rangelog local`, `rangelog demo` and the tests run.

What holds:
- A child is ready when its endpoint file names its pid, not before; a child that dies while starting is reported with
  the last thing it said. Waiting has a deadline.
- A child leads its own process group, so that Ctrl-C reaches only the supervisor and a kill reaches all it started.
- No child outlives the supervisor (`lifeline`), and no cluster directory is used by two supervisors (a lock).
- A member that is started again has the same directory, ports and name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rangelog.errors import InternalError, RequestTimeout, Unavailable
from rangelog_cli.lifeline import LIFELINE_ENV, lifeline_fd
from rangelog_cli.plan import (
    ClusterPlan,
    PdPlan,
    ServerPlan,
    make_plan,
    read_plan,
    with_ports,
    with_range_servers,
    write_plan,
)
from rangelog_cli.ports import is_free, refuse_busy

START_TIMEOUT_S = 60.0
"""A loaded machine starts seven Python processes slowly; a healthy one takes two seconds."""
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01
_LOG_BYTES_MAX = 16 * 1024 * 1024
_LAST_WORDS_BYTES = 16 * 1024
_SAID_WHAT_TO_DO = re.compile(r"(?:rangelog|pd|placement-driver|range-server): (.+)")


class Process:
    """One child. `ready_file` is the endpoint file it writes when it listens (None: ready once it runs)."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log_path: Path,
        ready_file: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.starts = 0
        self._arguments = list(arguments)
        self._ready_file = ready_file
        self._env = dict(env or {})
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Of the child that runs or ran last; raises InternalError before the first start."""
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._started().poll()

    @property
    def stdin(self) -> IO[bytes]:
        """A pipe to the child's standard input."""
        pipe = self._started().stdin
        assert pipe is not None
        return pipe

    def start(self) -> None:
        """Spawn it. Does not wait: see `wait_ready`."""
        if self.running:
            raise InternalError(f"{self.name} runs already")
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_MAX:
            os.replace(self.log_path, self.log_path.with_suffix(".log.1"))
        lifeline = lifeline_fd()
        env = os.environ | self._env | {LIFELINE_ENV: str(lifeline), "PYTHONUNBUFFERED": "1"}
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                [sys.executable, *self._arguments],
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lifeline,),
            )
        self.starts += 1

    def ready(self) -> bool:
        """Whether it listens; raises Unavailable with its last words when it has ended."""
        if self._started().poll() is not None:
            raise Unavailable(f"{self.name} ended with exit code {self.returncode}: {self.last_words()}")
        if self._ready_file is None:
            return True
        try:
            return bool(json.loads(self._ready_file.read_text())["pid"] == self.pid)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once it listens. Raises Unavailable when it dies, RequestTimeout when it takes too long."""
        wait_until(self.ready, timeout_s, f"{self.name} does not listen: see {self.log_path}")

    def wait(self, timeout_s: float) -> int:
        """Its exit code; raises RequestTimeout when it still runs then."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RequestTimeout(f"{self.name} still runs after {timeout_s:g} s: see {self.log_path}") from None

    def endpoint(self) -> dict[str, object]:
        """What the endpoint file says: addresses, incarnation."""
        if self._ready_file is None:
            return {}
        found: dict[str, object] = json.loads(self._ready_file.read_text())
        return found

    def kill(self) -> None:
        """`kill -9` to it and all it started, and wait until it is gone. No effect on one that has ended."""
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()
            self._close_stdin()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group (SIGSTOP and SIGCONT make it pause and go on)."""
        if self.running:
            os.killpg(self.pid, number)

    def request_stop(self) -> None:
        """Ask it to end by itself; see `finish`."""
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGTERM)

    def finish(self, deadline_s: float) -> None:
        """Wait until the monotonic time `deadline_s`, then `kill -9` what is left."""
        if self._popen is None:
            return
        try:
            self._popen.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_stdin()

    def last_words(self) -> str:
        """The last line of its log since it was started; one that says what to do is preferred."""
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


class Cluster:
    """Placement drivers and range servers on this machine, with their data in one directory.

    Open it with `Cluster.open`, use it as a context manager (or `start` and `stop`). Blocking; not for use by several
    threads at once, except for `kill`, `start_member` and `restart` of different members.
    """

    def __init__(self, directory: Path, plan: ClusterPlan, lock: IO[str], env: Mapping[str, str]) -> None:
        self.directory = directory
        self.plan = plan
        self._lock = lock
        self.placement_drivers = {pd.name: self._pd(pd, env) for pd in plan.pds}
        self.range_servers = {server.name: self._server(server, env) for server in plan.range_servers}

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        pds: int | None = None,
        range_servers: int | None = None,
        tier_url: str | None = None,
        base_port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Lock `directory` and read its plan, or make one. Nothing is started.

        What is None is as it was, or by default 3 placement drivers, 3 range servers, a tier in the directory itself
        and free ports. `env` is added to the children's environment (settings such as RANGELOG_SERVER_…).

        Raises Unavailable when another supervisor uses the directory or a port is busy, InvalidArgument when the
        directory holds another cluster than the one asked for.
        """
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _lock_directory(directory)
        try:
            plan = _plan_for(directory, pds, range_servers, tier_url, base_port)
            refuse_busy(plan.ports())
            write_plan(directory, plan)
        except BaseException:
            lock.close()
            raise
        return cls(directory, plan, lock, env or {})

    @property
    def pd_addresses(self) -> list[str]:
        """host:port of every placement driver's API."""
        return self.plan.pd_addresses

    @property
    def connect_string(self) -> str:
        """What `rangelog.connect` takes."""
        return ",".join(self.pd_addresses)

    @property
    def members(self) -> dict[str, Process]:
        """All processes by name: pd1, …, rs1, …"""
        return self.placement_drivers | self.range_servers

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start every member that does not run, and return once all listen; stops all again when one does not."""
        try:
            started = [process for process in self.members.values() if not process.running]
            for process in started:
                process.start()
            deadline = time.monotonic() + timeout_s
            for process in started:
                process.wait_ready(max(0.1, deadline - time.monotonic()))
        except BaseException:
            self.kill_all()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop range servers, then placement drivers, and let go of the directory. Idempotent."""
        for group in (self.range_servers, self.placement_drivers):
            for process in group.values():
                process.request_stop()
            deadline = time.monotonic() + timeout_s
            for process in group.values():
                process.finish(deadline)
        self._lock.close()

    def kill(self, name: str) -> None:
        """`kill -9` one member."""
        self.members[name].kill()

    def kill_all(self) -> None:
        """`kill -9` every member, all at once."""
        for process in self.members.values():
            process.signal(signal.SIGKILL)
        for process in self.members.values():
            process.kill()

    def pause(self, name: str) -> None:
        """SIGSTOP one member: it keeps its connections and answers nothing."""
        self.members[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT one member."""
        self.members[name].signal(signal.SIGCONT)

    def start_member(self, name: str, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start one member that was killed or stopped."""
        self.members[name].start()
        if wait:
            self.members[name].wait_ready(timeout_s)

    def restart(self, name: str, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """SIGTERM one member, wait for its clean end, and start it again."""
        process = self.members[name]
        process.request_stop()
        process.finish(time.monotonic() + STOP_TIMEOUT_S)
        self.start_member(name, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _pd(self, pd: PdPlan, env: Mapping[str, str]) -> Process:
        home = self.directory / pd.name
        arguments = ["-m", "rangelog_cli", "pd", "--name", pd.name]
        arguments += ["--listen", pd.api_address, "--data-dir", str(home), "--tier-url", self.plan.tier_url]
        for member in self.plan.pds:
            arguments += ["--member", f"{member.name}={member.raft_address}@{member.api_address}"]
        secret = {"RANGELOG_PD_RAFT_SECRET": self.plan.raft_secret}  # by environment: arguments are for all to see
        return self._process(pd.name, arguments, home, secret | dict(env))

    def _server(self, server: ServerPlan, env: Mapping[str, str]) -> Process:
        home = self.directory / server.name
        arguments = ["-m", "rangelog_cli", "range-server", "--name", server.name, "--data-dir", str(home)]
        arguments += ["--data-listen", f"127.0.0.1:{server.data_port}"]
        arguments += ["--control-listen", f"127.0.0.1:{server.control_port}", "--zone", server.zone]
        for address in self.plan.pd_addresses:
            arguments += ["--pd", address]
        return self._process(server.name, arguments, home, env)

    def _process(self, name: str, arguments: Sequence[str], home: Path, env: Mapping[str, str]) -> Process:
        log_path = self.directory / "logs" / f"{name}.log"
        return Process(name, arguments, log_path=log_path, ready_file=home / "endpoint.json", env=env)


def wait_until(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    """Poll `condition` until it holds; raises RequestTimeout saying `otherwise` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RequestTimeout(f"not within {timeout_s:g} s: {otherwise}")
        time.sleep(_POLL_S)


def stop_all(processes: Iterable[Process], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ask all to stop, and kill what has not after `timeout_s`."""
    children = list(processes)
    for process in children:
        process.request_stop()
    deadline = time.monotonic() + timeout_s
    for process in children:
        process.finish(deadline)


def _lock_directory(directory: Path) -> IO[str]:
    lock = (directory / "LOCK").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise Unavailable(
            f"{directory} is in use by another cluster (pid {owner}): stop it, or choose another --data-dir"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _plan_for(
    directory: Path, pds: int | None, range_servers: int | None, tier_url: str | None, base_port: int | None
) -> ClusterPlan:
    plan = read_plan(directory)
    if plan is None:
        tier = f"file://{directory / 'tier'}" if tier_url is None else tier_url
        return make_plan(pds=pds or 3, range_servers=range_servers or 3, tier_url=tier, base_port=base_port or 0)
    if pds is not None and pds != len(plan.pds):
        raise Unavailable(
            f"{directory} holds {len(plan.pds)} placement drivers, not {pds}: leave out --pds, or use a new --data-dir"
        )
    if tier_url is not None and tier_url != plan.tier_url:
        raise Unavailable(f"{directory} keeps its tier at {plan.tier_url}: leave out --tier, or use a new --data-dir")
    if range_servers is not None and range_servers != len(plan.range_servers):
        plan = with_range_servers(plan, range_servers)
    moved = base_port is not None and base_port != plan.base_port
    if moved or (plan.base_port == 0 and not all(is_free(port) for port in plan.ports().values())):
        plan = with_ports(plan, base_port or 0)  # nobody named these ports: others do as well
    return plan
