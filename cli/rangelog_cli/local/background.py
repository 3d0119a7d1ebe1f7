"""A local cluster in the background: started, found, described, stopped.

What holds: only a process that wrote itself down in the directory is signalled, as the one that it still is: a process with the
same number that began at another time is not it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pdctl.stopped import process_began
from rangelog_core.errors import RangelogError, RequestTimeout, Unavailable

RUN_FILE = "local.json"
LOG_FILE = "local.log"
START_TIMEOUT_S = 180.0
_POLL_S = 0.05
_STOP_POLL_S = 0.1


@dataclass(frozen=True)
class Running:
    """The process of `rangelog local` for a directory. `began`: by the kernel's clock, "" where it has no /proc.

    `left_out`: range servers that do not run, since they were removed from the cluster.
    """

    pid: int
    began: str
    started_ms: int
    in_background: bool
    context: str = ""
    is_up: bool = False
    left_out: tuple[str, ...] = ()

    @classmethod
    def this_process(cls, *, in_background: bool, context: str = "") -> Running:
        """Return what describes the process that runs this."""
        pid = os.getpid()
        return cls(pid, process_began(pid) or "", time.time_ns() // 1_000_000, in_background, context)

    @property
    def lives(self) -> bool:
        """Whether this very process still runs."""
        return process_began(self.pid) == self.began


def write_running(directory: Path, running: Running) -> None:
    """Write it down, whole or not at all."""
    path = directory / RUN_FILE
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(running)) + "\n")
    os.replace(fresh, path)


def find_running(directory: Path) -> Running | None:
    """Return the process that runs the directory's cluster, or None."""
    try:
        fields = json.loads((directory / RUN_FILE).read_text())
        running = Running(**fields | {"left_out": tuple(map(str, fields.get("left_out", ())))})
        if not isinstance(running.pid, int) or running.pid <= 1 or not isinstance(running.began, str):
            return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return running if running.lives else None


def start(directory: Path, options: Mapping[str, Any]) -> str:
    """Start the cluster in the background; return what it printed when it was up.

    `options`: of the command; of `context` None is no context, and "" the default one. Raises Unavailable with what it said
    where it ended, RequestTimeout.
    """
    running = find_running(directory)
    if running is not None:
        raise Unavailable(
            f"the cluster in {directory} runs already (pid {running.pid}): see `rangelog local status`"
            + (_context_again(directory, options["context"]) if options.get("context") is not None else "")
        )
    log_path = directory / "logs" / LOG_FILE
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    log_path.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "rangelog_cli", "local", "--in-background", "--data-dir", str(directory)]
    with log_path.open("ab") as log:
        begin = log.tell()
        child = subprocess.Popen(
            [*command, *_as_arguments(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_until_up(child, directory, log_path, begin)
    except BaseException:
        with suppress(ProcessLookupError):
            child.terminate()
        raise
    with log_path.open("rb") as log:
        log.seek(begin)
        return log.read().decode("utf-8", "replace")


def _context_again(directory: Path, wanted: str) -> str:
    """Write the context of a running cluster where it was deleted; return what to say of it."""
    from rangelog_cli.local.certificates import ADMIN, LocalCertificates
    from rangelog_cli.local.naming import choose_name, known_as, write_local_context
    from rangelog_cli.local.plan import read_plan

    try:
        plan = read_plan(directory)
        if plan is None or known_as(directory, plan.pd_addresses):
            return ""
        tls = LocalCertificates.of(directory, plan).files(ADMIN) if plan.tls else None
        name = choose_name(directory, wanted or None, plan.pd_addresses)
        is_used = write_local_context(directory, name, plan.pd_addresses, tls)
    except (OSError, RangelogError) as error:
        return f". It has no context for pdctl, and none was written: {error}"
    how = "in use" if is_used else f"not in use: `pdctl context use {name}` changes that"
    return f". Its context for pdctl was gone, and is written again: {name}, {how}"


def _context_line(directory: Path, pd: Sequence[str], written: str) -> list[str]:
    """Return what `rangelog local status` says of the context for pdctl. `written`: the one of the start, or ""."""
    from rangelog_cli.local.naming import known_as

    try:
        name = known_as(directory, pd)
    except RangelogError as error:
        return [f"pdctl context  unknown: {error}"]
    if name:
        return [f"pdctl context  {name}"]
    return [f"pdctl context  none, {written} was deleted: `rangelog local --detach` writes it again"] if written else []


def _as_arguments(options: Mapping[str, Any]) -> list[str]:
    flags = {"tier_url": "--tier"}
    found: list[str] = []
    for name, value in options.items():
        if name == "context":
            found += ["--no-context"] if value is None else ["--context", value] if value else []
        elif name == "tls" and value is not None:
            found.append("--tls" if value else "--no-tls")
        elif name == "tokens" and value is not None:
            found.append("--tokens" if value else "--no-tokens")
        elif name == "encrypted" and value is not None:
            found.append("--encrypted" if value else "--in-clear")
        elif value is not None:
            found += [flags.get(name, f"--{name.replace('_', '-')}"), str(value)]
    return found


def _wait_until_up(child: subprocess.Popen[bytes], directory: Path, log_path: Path, begin: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if child.poll() is not None:
            raise Unavailable(_last_words(log_path, begin))
        running = find_running(directory)
        if running is not None and running.pid == child.pid and running.is_up:
            return
        if time.monotonic() > deadline:
            raise RequestTimeout(f"the cluster was not up within {START_TIMEOUT_S:g} s: see {log_path}")
        time.sleep(_POLL_S)


def _last_words(log_path: Path, begin: int) -> str:
    with log_path.open("rb") as log:
        log.seek(begin)
        lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    said = [line.removeprefix("rangelog: ") for line in lines if line.startswith("rangelog: ")]
    return said[-1] if said else f"it ended before it was up: see {log_path}"


def stop(directory: Path, timeout_s: float) -> str:
    """Stop the cluster and return what to say. Raises Unavailable, RequestTimeout."""
    running = find_running(directory)
    if running is None:
        owner = _other_owner(directory)
        if owner is not None:
            raise Unavailable(
                f"{directory} is in use by process {owner}, which is not `rangelog local`: stop it where it was started"
            )
        return f"The cluster in {directory} does not run."
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while running.lives:
        if time.monotonic() > deadline:
            raise RequestTimeout(
                f"the cluster in {directory} (pid {running.pid}) still stops after {timeout_s:g} s: "
                "see `rangelog local logs local`"
            )
        time.sleep(_STOP_POLL_S)
    return f"Stopped the cluster in {directory}. A start with the same --data-dir continues with the same data."


def described(directory: Path, running: Running | None) -> str:
    """Return what `rangelog local status` says."""
    from rangelog_cli.local.plan import read_plan

    plan = read_plan(directory)
    if plan is None:
        return f"There is no cluster in {directory}: make one with `rangelog local --data-dir {directory}`."
    if running is None:
        owner = _other_owner(directory)
        by = f" by `rangelog local`; process {owner} has the directory" if owner is not None else ""
        return f"The cluster in {directory} does not run{by}: start it with `rangelog local --data-dir {directory}`."
    since = datetime.fromtimestamp(running.started_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = "in the background" if running.in_background else "in a terminal"
    names = [pd.name for pd in plan.pds] + [server.name for server in plan.range_servers]
    names += [broker.name for broker in plan.brokers]
    members = [name for name in names if name not in running.left_out]
    down = [name for name in members if not _listens(directory / name)]
    return "\n".join([
        f"running        {where}, pid {running.pid}, since {since}" + ("" if running.is_up else "; it is starting"),
        f"connect to     {','.join(plan.pd_addresses)}",
        f"processes      {len(members) - len(down)} of {len(members)} listen"
        + (f"; not {', '.join(down)}: see `rangelog local logs {down[0]}`" if down else ""),
        *([f"left out       {', '.join(running.left_out)}: removed from the cluster"] if running.left_out else []),
        *_context_line(directory, plan.pd_addresses, running.context),
        f"tier           {plan.tier_url}",
        f"data and logs  {directory}",
    ])  # fmt: skip


def _listens(home: Path) -> bool:
    try:
        return process_began(int(json.loads((home / "endpoint.json").read_text())["pid"])) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _other_owner(directory: Path) -> int | None:
    """Return the living process that the directory's lock file names."""
    try:
        pid = int((directory / "LOCK").read_text().strip())
    except (OSError, ValueError):
        return None
    return pid if pid > 1 and process_began(pid) is not None else None
