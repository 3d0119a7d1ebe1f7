"""Pods of rendered objects as real processes, each in a network and a mount namespace of its own.

What holds: a pod runs the command, environment, files and probes of its container, under the names that its services give it
(/etc/hosts in place of DNS), and listens on an address of its own. Its paths lie in a directory of the test: where the
container has a mount path, its text is replaced by that of the directory. Users, limits and the read-only file system are
not imitated.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.waiting import Seen, eventually

Objects = list[dict[str, Any]]
PROGRAMS = Path(sys.executable).parent
POLL = 0.05


def namespaces_missing() -> str:
    """Why this machine cannot run pods; empty: it can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", "ip link add br0 type bridge && mount --bind /etc/hosts /etc/hosts"],
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    return "" if tried.returncode == 0 else f"namespaces are not allowed: {tried.stderr.strip()}"


class Network:
    """A bridge in a namespace of its own, and the namespaces that hang on it."""

    def __init__(self, directory: Path) -> None:
        self.hosts = directory / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self._holders: list[subprocess.Popen[bytes]] = []
        self._hub = self._hold()
        self._in(self._hub, "ip", "link", "add", "br0", "type", "bridge")
        self._in(self._hub, "ip", "link", "set", "br0", "up")

    def add(self, number: int) -> tuple[list[str], str]:
        """Make a namespace; return the beginning of a command that runs in it, and its address."""
        holder, address = self._hold(), f"10.42.0.{number}"
        self._in(
            self._hub, "ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", str(holder)
        )
        self._in(self._hub, "ip", "link", "set", f"v{number}", "master", "br0", "up")
        self._in(holder, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        self._in(holder, "ip", "link", "set", "eth0", "up")
        self._in(holder, "ip", "link", "set", "lo", "up")
        self._in(holder, "mount", "--bind", str(self.hosts), "/etc/hosts")
        return self._enter(holder), address

    def close(self) -> None:
        """End the namespaces; what ran in them must have ended."""
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _hold(self) -> int:
        """Start a process that keeps a pair of namespaces; return its id once it has them."""
        holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", "echo held; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._holders.append(holder)
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        return holder.pid

    def _in(self, holder: int, *command: str) -> None:
        subprocess.run([*self._enter(holder), *command], check=True, timeout=20, capture_output=True)

    @staticmethod
    def _enter(holder: int) -> list[str]:
        return ["nsenter", f"--target={holder}", "--net", "--mount", "--"]


class Pod:
    """One pod: its single container, started, probed and stopped as the kubelet does it."""

    def __init__(
        self, name: str, spec: Mapping[str, Any], enter: list[str], address: str, directory: Path, volumes: Mapping[str, Path],
        secrets: Mapping[str, Mapping[str, bytes]],
    ) -> None:  # fmt: skip
        """`volumes`: name of a volume of the pod → directory; `secrets`: name → key → value."""
        self.name, self.spec, self.address = name, spec, address
        (self.container,) = spec["containers"]
        self._enter, self._log_path = enter, directory / f"{name}.log"
        self._paths = {mount["mountPath"]: str(volumes[mount["name"]]) for mount in self.container["volumeMounts"]}
        self._fields = {"metadata.name": name, "status.podIP": address}
        self.environment = {"PATH": f"{PROGRAMS}:/usr/bin:/bin:/usr/sbin:/sbin"}
        for item in self.container["env"]:
            self.environment[item["name"]] = self.place(self._expand(self._value(item, secrets)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the container."""
        command = [*self.container.get("command", ["rangelog"]), *self.container["args"]]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, *(self.place(self._expand(each)) for each in command)],
                env=self.environment, stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip

    def probe(self, which: str) -> bool:
        """Whether a probe of this name succeeds, once."""
        probe = self.container[which]
        try:
            return self._run(probe["exec"]["command"], probe["timeoutSeconds"]).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def wait_for(self, which: str, timeout_s: float = 90.0) -> None:
        """Probe until it succeeds; the process must not end meanwhile."""

        def succeeds() -> Seen:
            assert self._process is not None and self._process.poll() is None, f"{self.name} ended: {self.log()}"
            return Seen(self.probe(which), self.log())

        eventually(succeeds, f"{self.name}: {which} fails", timeout_s)

    def stop(self) -> tuple[str, float]:
        """preStop, then SIGTERM, all within the grace time; return what a failing hook said, and how long the hook took."""
        assert self._process is not None
        began_s, grace_s = time.monotonic(), self.spec["terminationGracePeriodSeconds"]
        said = self.hook()
        took_s = time.monotonic() - began_s
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(grace_s - took_s) == 0, f"{self.name} failed: {self.log()}"
        return said, took_s

    def hook(self) -> str:
        """preStop alone; return what it said where it failed."""
        command = self.container["lifecycle"]["preStop"]["exec"]["command"]
        hook = self._run(command, self.spec["terminationGracePeriodSeconds"])
        said = (hook.stdout + hook.stderr).decode(errors="replace")
        return f"exit code {hook.returncode}: {said}" if hook.returncode else ""

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """The end of what it wrote."""
        return self._log_path.read_text()[-3_000:] if self._log_path.exists() else ""

    def _run(self, command: list[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._enter, *command], env=self.environment, timeout=timeout_s, capture_output=True, cwd="/"
        )

    def _value(self, item: Mapping[str, Any], secrets: Mapping[str, Mapping[str, bytes]]) -> str:
        if "value" in item:
            return str(item["value"])
        source = item["valueFrom"]
        if "fieldRef" in source:
            return self._fields[source["fieldRef"]["fieldPath"]]
        return secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]].decode()

    def _expand(self, text: str) -> str:
        """$(NAME) by what stands before it, as the kubelet does it; an unknown one stays."""
        return re.sub(r"\$\(([A-Za-z_]\w*)\)", lambda found: self.environment.get(found[1], found[0]), text)

    def place(self, text: str) -> str:
        """A text, its mount paths replaced where words begin with them."""
        mounts = "|".join(map(re.escape, sorted(self._paths, key=len, reverse=True)))
        return re.sub(rf'(?<![^\s"])({mounts})(?=/|"|$)', lambda found: self._paths[found[1]], text)
