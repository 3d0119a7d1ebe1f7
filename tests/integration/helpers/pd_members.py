"""Real placement drivers whose group grows and shrinks, started one by one on one machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.process import Process, stop_all
from tests.integration.helpers.pdctl_command import _environment
from tests.support.waiting import eventually

SECRET = "of the members of this group"


class Members:
    """Placement drivers by name; each has addresses of its own, and an empty directory until it is started."""

    def __init__(self, directory: Path, *, snapshot_entries: int = 100) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, Process] = {}
        self.api: dict[str, str] = {}
        self.raft: dict[str, str] = {}
        self._env = {
            "RANGELOG_PD_RAFT_SECRET": SECRET,
            "RANGELOG_PD_SNAPSHOT_ENTRIES": str(snapshot_entries),
        }

    def begin(self, *names: str, more: tuple[str, ...] = (), reserve: tuple[str, ...] = ()) -> None:
        """Start the members of a new group. `reserve`: those of later ones whose addresses are chosen now."""
        for name in (*names, *reserve):
            self._addresses(name)
        members = [part for name in names for part in ("--member", f"{name}={self.raft[name]}@{self.api[name]}")]
        for name in names:
            self._start(name, [*members, *more])
        for name in names:
            self.processes[name].wait_ready()

    def join(self, name: str, through: str) -> str:
        """Start one more, on an empty directory; returns what `pdctl pd add` takes."""
        self._addresses(name)
        shutil.rmtree(self.directory / name, ignore_errors=True)
        self._start(name, ["--raft-listen", self.raft[name], "--join", self.api[through]])
        self.processes[name].wait_ready()
        return f"{name}={self.raft[name]}@{self.api[name]}"

    def start_with_join(self, name: str, through: str) -> None:
        """Start one again as `join` does, on the directory that it has."""
        self._start(name, ["--raft-listen", self.raft[name], "--join", self.api[through]])
        self.processes[name].wait_ready()

    def pdctl(self, *arguments: str, through: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run pdctl with the API addresses of these members, or of all that run."""
        names = through or [name for name, process in self.processes.items() if process.running]
        command = [sys.executable, "-m", "pdctl", "--pd", ",".join(self.api[name] for name in names), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=120, check=False)

    def ok(self, *arguments: str) -> Any:
        """Run with -o json, must succeed."""
        run = self.pdctl(*arguments, "-o", "json")
        assert run.returncode == 0, (arguments, run.stdout, run.stderr)
        return json.loads(run.stdout)

    def listed(self) -> dict[str, Any]:
        """`pdctl pd list`."""
        found: dict[str, Any] = self.ok("pd", "list")
        return found

    def voters(self) -> set[str]:
        """Who counts."""
        return {each["name"] for each in self.listed()["members"] if each["voter"]}

    def voters_of(self, name: str) -> set[str]:
        """Who counts, by the word of one member."""
        run = self.pdctl("pd", "list", "-o", "json", through=[name])
        return {each["name"] for each in json.loads(run.stdout)["members"] if each["voter"]}

    def log(self, name: str) -> str:
        """What a member has written."""
        return (self.directory / "logs" / f"{name}.log").read_text()

    def leader(self) -> str:
        """Who leads; waits for one."""
        found = eventually(lambda: [each["name"] for each in self.listed()["members"] if each["leader"]], "a leader")
        return str(found[0])

    def stop(self) -> None:
        """End all."""
        stop_all(self.processes.values(), 10.0)

    def _addresses(self, name: str) -> None:
        if name not in self.api:
            api, raft = free_ports(2)
            self.api[name], self.raft[name] = f"127.0.0.1:{api}", f"127.0.0.1:{raft}"

    def _start(self, name: str, more: list[str]) -> None:
        home = self.directory / name
        arguments = ["-m", "rangelog_cli", "pd", "--name", name, "--listen", self.api[name], "--data-dir", str(home)]
        self.processes[name] = Process(
            name,
            [*arguments, *more],
            log_path=self.directory / "logs" / f"{name}.log",
            ready_file=home / "endpoint.json",
            env=self._env,
        )
        self.processes[name].start()
