"""A whole cluster of child processes on this machine, for `rangelog local`, `rangelog demo` and the tests.

What holds:
- No member outlives the supervisor, and no cluster directory is used by two supervisors (a lock).
- A member that is started again has the same directory, ports and name.
- A range server that was removed from the cluster is left out: it does not keep the others from starting.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rangelog_cli.local.certificates import ADMIN, CLIENT, LocalCertificates
from rangelog_cli.local.doors import with_doors
from rangelog_cli.local.encryption import KEYS, with_encryption
from rangelog_cli.local.plan import (
    BrokerPlan,
    ClusterPlan,
    PdPlan,
    ServerPlan,
    make_plan,
    read_plan,
    with_brokers,
    with_hosts,
    with_ports,
    with_range_servers,
    write_plan,
)
from rangelog_cli.local.ports import is_free, refuse_busy
from rangelog_cli.local.process import START_TIMEOUT_S, STOP_TIMEOUT_S, Launch, Process, stop_all, wait_until
from rangelog_core.errors import InvalidArgument, Unavailable
from rangelog_core.exit_codes import EXIT_DIRECTORY_GIVEN_UP
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_tier.encryption_keys import KEYS_DIR_ENV

__all__ = ["Cluster", "Launch", "Process", "stop_all", "wait_until"]


class Cluster:
    """Placement drivers and range servers on this machine, with their data in one directory.

    Open it with `Cluster.open`, use it as a context manager (or `start` and `stop`). Blocking; not for use by several
    threads at once, except for `kill`, `start_member` and `restart` of different members.
    """

    def __init__(
        self,
        directory: Path,
        plan: ClusterPlan,
        lock: IO[str],
        env: Mapping[str, str],
        launches: Mapping[str, Launch] | None = None,
    ) -> None:
        self.directory = directory
        self.plan = plan
        self._lock = lock
        self._launches = launches or {}
        if plan.encrypted:
            env = {KEYS_DIR_ENV: str(self.keys_dir)} | dict(env)
        self.certificates = LocalCertificates.of(directory, plan) if plan.tls else None
        self.placement_drivers = {pd.name: self._pd(pd, env) for pd in plan.pds}
        self.range_servers = {server.name: self._server(server, env) for server in plan.range_servers}
        self.brokers = {broker.name: self._broker(broker, env) for broker in plan.brokers}
        self.left_out: set[str] = set()
        """Range servers that were removed from the cluster while their directories are there: they do not run."""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        pds: int | None = None,
        range_servers: int | None = None,
        brokers: int | None = None,
        tier_url: str | None = None,
        base_port: int | None = None,
        tls: bool | None = None,
        encrypted: bool | None = None,
        tokens: bool | None = None,
        doors: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
        launches: Mapping[str, Launch] | None = None,
    ) -> Self:
        """Lock `directory` and read its plan, or make one. No process is started.

        A value of None keeps that of the plan, by default 3 placement drivers, 3 range servers, no broker, a tier in the
        directory itself, free ports, no TLS, no tokens, no doors and objects in clear. `env` is added to the children's
        environment (settings such as RANGELOG_SERVER_…).
        By name of the member: `hosts` are addresses of this machine other than loopback, `launches` the ways to start it
        (in a network namespace, with settings of its own).

        Raises Unavailable when another supervisor uses the directory or a port is busy, InvalidArgument when the
        directory holds another cluster than the one asked for.
        """
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _lock_directory(directory)
        try:
            plan = _plan_for(directory, pds, range_servers, brokers, tier_url, base_port)
            plan = replace(plan, tls=plan.tls if tls is None else tls, tokens=plan.tokens if tokens is None else tokens)
            if plan.tokens and not plan.tls:
                raise InvalidArgument("tokens travel by TLS only: add --tls, or pass --no-tokens")
            plan = with_hosts(with_encryption(with_doors(plan, doors), directory / KEYS, encrypted), hosts or {})
            refuse_busy(plan.ports())
            write_plan(directory, plan)
        except BaseException:
            lock.close()
            raise
        return cls(directory, plan, lock, env or {}, launches)

    @property
    def pd_addresses(self) -> list[str]:
        """host:port of every placement driver's API."""
        return self.plan.pd_addresses

    @property
    def keys_dir(self) -> Path:
        """The directory of keys, where objects are encrypted."""
        return self.directory / KEYS

    @property
    def connect_string(self) -> str:
        """The addresses for `rangelog.connect`."""
        return ",".join(self.pd_addresses)

    @property
    def tls(self) -> TlsConfig | None:
        """The certificate of an administrator, where the cluster has TLS."""
        return self.certificates.files(ADMIN) if self.certificates is not None else None

    @property
    def client_tls(self) -> TlsConfig | None:
        """The certificate of a client, where the cluster has TLS."""
        return self.certificates.files(CLIENT) if self.certificates is not None else None

    @property
    def members(self) -> dict[str, Process]:
        """All processes by name: pd1, …, rs1, …, broker1, …"""
        return self.placement_drivers | self.range_servers | self.brokers

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start every member that does not run, and return once all listen; stop all if one does not.

        Range servers that were removed from the cluster do not count: see `left_out`.
        """
        try:
            self.left_out.clear()
            started = [process for process in self.members.values() if not process.running]
            for process in started:
                process.start()
            deadline = time.monotonic() + timeout_s
            for process in started:
                _wait_ready_or_removed(process, max(0.1, deadline - time.monotonic()))
            self.leave_out_removed()
        except BaseException:
            self.kill_all()
            raise

    def leave_out_removed(self) -> list[str]:
        """Note the range servers that ended since they were removed; return the names of those that ended just now."""
        found = [name for name, process in self.range_servers.items() if _was_removed(process)]
        fresh = [name for name in found if name not in self.left_out]
        self.left_out.update(fresh)
        return fresh

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop brokers, range servers, then placement drivers, and unlock the directory. Idempotent."""
        for group in (self.brokers, self.range_servers, self.placement_drivers):
            stop_all(group.values(), timeout_s)
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
        """SIGSTOP one member: it keeps its connections and sends no replies."""
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
        secret = {"RANGELOG_PD_RAFT_SECRET": self.plan.raft_secret}  # by environment: other users can see arguments
        if len(self.plan.range_servers) == 1:
            secret["RANGELOG_PD_STREAM_REPLICAS"] = "1"
        return self._process(pd.name, arguments, home, secret | self._tls(Role.PD, pd.name, "RANGELOG_PD_") | dict(env))

    def _server(self, server: ServerPlan, env: Mapping[str, str]) -> Process:
        home = self.directory / server.name
        arguments = ["-m", "rangelog_cli", "range-server", "--name", server.name, "--data-dir", str(home)]
        arguments += ["--data-listen", f"{server.host}:{server.data_port}"]
        arguments += ["--control-listen", f"{server.host}:{server.control_port}", "--zone", server.zone]
        for address in self.plan.pd_addresses:
            arguments += ["--pd", address]
        env = self._tls(Role.RANGE_SERVER, server.name, "RANGELOG_SERVER_") | dict(env)
        if self.keys_dir.is_dir():  # in clear again: what was encrypted is read all the same
            log_env = {"RANGELOG_SERVER_LOG_KEYS_DIR": str(self.keys_dir)}
            env = log_env | {"RANGELOG_SERVER_ENCRYPT_LOG": str(self.plan.encrypted).lower()} | env
        return self._process(server.name, arguments, home, env)

    def _broker(self, broker: BrokerPlan, env: Mapping[str, str]) -> Process:
        home = self.directory / broker.name
        home.mkdir(exist_ok=True)
        arguments = ["-m", "rangelog_cli", "broker", "--name", broker.name, "--run-dir", str(home)]
        arguments += ["--listen", f"{broker.host}:{broker.port}", "--zone", broker.zone]
        arguments += ["--control-listen", f"{broker.host}:{broker.control_port}"]
        arguments += ["--rest-listen", f"{broker.host}:{broker.rest_port}"]
        for address in self.plan.pd_addresses:
            arguments += ["--pd", address]
        doors = {
            f"RANGELOG_BROKER_DOORS__{name.upper()}__LISTEN": f"{broker.host}:{port}"
            for name, port in broker.doors.items()
        }
        env = self._tls(Role.BROKER, broker.name, "RANGELOG_BROKER_") | doors | dict(env)
        return self._process(broker.name, arguments, home, env)

    def _tls(self, role: Role, name: str, env_prefix: str) -> dict[str, str]:
        """Return the environment that gives a process its certificate."""
        if self.certificates is None:
            return {}
        files = self.certificates.files(Principal(role, name))
        tokens = {f"{env_prefix}TOKENS": "true"} if self.plan.tokens else {}
        return tokens | {f"{env_prefix}TLS_{key.upper()}": path for key, path in asdict(files).items()}

    def _process(self, name: str, arguments: Sequence[str], home: Path, env: Mapping[str, str]) -> Process:
        log_path = self.directory / "logs" / f"{name}.log"
        launch = self._launches.get(name, Launch())
        return Process(
            name,
            arguments,
            log_path=log_path,
            ready_file=home / "endpoint.json",
            env=dict(env) | dict(launch.env),
            prefix=launch.prefix,
        )


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
    directory: Path,
    pds: int | None,
    range_servers: int | None,
    brokers: int | None,
    tier_url: str | None,
    base_port: int | None,
) -> ClusterPlan:
    plan = read_plan(directory)
    if plan is None:
        if tier_url:
            from rangelog_tier.opening import store_location

            store_location(tier_url)  # what is no URL of a store would show only when the first range is sealed
        tier = (directory / "tier").as_uri() if tier_url is None else tier_url
        return make_plan(
            pds=3 if pds is None else pds,
            range_servers=3 if range_servers is None else range_servers,
            brokers=brokers or 0,
            tier_url=tier,
            base_port=base_port or 0,
        )
    if pds is not None and pds != len(plan.pds):
        raise Unavailable(
            f"{directory} holds {len(plan.pds)} placement drivers, not {pds}: leave out --pds, or use a new --data-dir"
        )
    if tier_url is not None and tier_url != plan.tier_url:
        raise Unavailable(f"{directory} keeps its tier at {plan.tier_url}: leave out --tier, or use a new --data-dir")
    if range_servers is not None and range_servers != len(plan.range_servers):
        plan = with_range_servers(plan, range_servers)
    if brokers is not None and brokers != len(plan.brokers):
        plan = with_brokers(plan, brokers)
    moved = base_port is not None and base_port != plan.base_port
    if moved or (plan.base_port == 0 and not all(is_free(port) for port in plan.ports().values())):
        plan = with_ports(plan, base_port or 0)  # the ports were not requested: others are as good
    return plan


def _was_removed(process: Process) -> bool:
    """Whether a range server has ended since no placement driver takes its data directory again."""
    return not process.running and process.returncode == EXIT_DIRECTORY_GIVEN_UP


def _wait_ready_or_removed(process: Process, timeout_s: float) -> None:
    """Return once the member listens, or has ended as one that was removed. Raises as `Process.wait_ready`."""
    wait_until(
        lambda: _was_removed(process) or process.ready(),
        timeout_s,
        f"{process.name} does not listen: see {process.log_path}",
    )
