"""Placement drivers of a simulated cluster: production driver, handlers, reconcilers and state, on a log by fiat.

The log is one list that a majority of living, connected members appends to; who leads, and when, the group decides. That is
what consensus promises; that ours keeps the promise is shown by raft_group and its own simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rangelog_core.errors import NotLeader, OutcomeUnknown, RangelogError, Unavailable
from rangelog_pd.audit_writer import AuditWriter
from rangelog_pd.consensus.interface import ConsensusStatus, MemberStatus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import add_services
from rangelog_pd.reconcile.repack_queue import OFF
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_pd.runtime import RECONCILE_INTERVAL_S
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from rangelog_proto.v1 import pd_state_pb2
from tests.simulation.virtual_network import Network, Service
from tests.simulation.virtual_tier import NoTrials
from tests.simulation.virtual_time import Process, VirtualLoop

API_PORT = 2379
ELECTION_S = (0.2, 0.8)
SLOW_S = 0.05
OVERTAKEN_S = 0.5
ORPHAN_QUIET_MS = 2_000
REPAIR_SOON_MS = 5_500
"""Servers that come back after a lease were replaced meanwhile, in some runs."""


class FiatGroup:
    """The log, and who leads."""

    def __init__(self, loop: VirtualLoop, network: Network, names: list[str]) -> None:
        self.loop, self.network, self.names = loop, network, names
        self.log: list[bytes] = []
        self.members: dict[str, FiatConsensus] = {}
        self.leader: str | None = names[0]
        self.term = 1
        self.on_applied: Callable[[Machine, bytes, bytes], None] = lambda machine, command, result: None
        self.notes: Callable[[str], None] = lambda what: None
        self._electing = False
        self.repair_after_ms = REPLACE_AFTER_MS
        self.repack_rules = OFF
        self.has_audit = False
        self.levels = dict.fromkeys(names, FEATURE_LEVEL)
        """The feature level of each member's program."""
        self.slow_action = ""
        """Commands of this kind take so long that others overtake them."""
        self.overtaking_action = ""
        """Where it is given, such a command waits until one of this kind is applied, for OVERTAKEN_S at most."""

    def begin_at_an_earlier_level(self) -> None:
        """All members run the earlier program; each that is started again runs the new one."""
        self.levels = dict.fromkeys(self.names, FEATURE_LEVEL_MIN)

    def reaches_majority(self, name: str) -> bool:
        """Whether this member and another one hear each other."""
        others = [other for other in self.names if other != name]
        return any(self._both_ways(name, other) for other in others)

    def _both_ways(self, name: str, other: str) -> bool:
        alive = [self.members.get(each) for each in (name, other)]
        if not all(each is not None and each.process.alive and not each.process.paused for each in alive):
            return False
        return not (self.network.is_cut(name, other) or self.network.is_cut(other, name))

    def look(self) -> None:
        """Elect somebody when the leader cannot lead."""
        if self._electing or (self.leader is not None and self.reaches_majority(self.leader)):
            return
        self._electing = True
        self.loop.call_later(self.loop.chance.uniform(*ELECTION_S), self._elect)

    def _elect(self) -> None:
        self._electing = False
        if self.leader is not None and self.reaches_majority(self.leader):
            return
        able = [name for name in self.names if self.reaches_majority(name)]
        if not able:
            self.leader = None
            return
        self.leader = self.loop.chance.choice(able)
        self.term += 1
        self.notes("the placement driver's leader changed")
        self.members[self.leader].catch_up()

    def watch(self) -> None:
        """Keep looking."""
        self.look()
        self.loop.call_later(0.1, self.watch)


class FiatConsensus:
    """One member's consensus."""

    def __init__(self, group: FiatGroup, process: Process, machine: Machine) -> None:
        self.lock = threading.Lock()
        self.group, self.process, self.machine = group, process, machine
        self.applied = 0
        self.believes = 0  # the last term in which this one led
        group.members[process.name] = self

    def catch_up(self) -> None:
        """Apply all there is; sometimes by way of a snapshot."""
        while self.applied < len(self.group.log):
            self._apply_next()

    def _apply_next(self) -> bytes:
        command = self.group.log[self.applied]
        self.applied += 1
        result = self.machine.apply(self.applied, command)
        if self.applied % 50 == 0:
            self.machine.state.validate_indexes()
            self.machine.restore(self.machine.snapshot())
        return result

    def _check_leader(self) -> None:
        group = self.group
        if group.leader == self.process.name:
            self.believes = group.term
        if not self.believes:
            raise NotLeader("this placement driver does not lead")

    async def start(self) -> None:
        """Replay."""
        self.catch_up()

    async def propose(self, command: bytes, *, timeout_s: float) -> bytes:
        """See Consensus.propose."""
        group = self.group
        self._check_leader()
        slow = group.slow_action and _action_of(command) == group.slow_action
        if slow and group.overtaking_action:
            await self._until_overtaken()
            slow = False
        await asyncio.sleep(group.loop.chance.expovariate(1 / (SLOW_S if slow else 0.001)))
        if group.leader != self.process.name or not group.reaches_majority(self.process.name):
            applied = group.leader == self.process.name and group.loop.chance.random() < 0.5
            if applied:  # it reached somebody, and the answer did not come back
                self._append(command)
            await asyncio.sleep(timeout_s)
            if group.leader != self.process.name:
                self.believes = 0
            raise OutcomeUnknown("the command may or may not have been applied")
        result = self._append(command)
        await asyncio.sleep(group.loop.chance.expovariate(1 / 0.0005))
        return result

    async def _until_overtaken(self) -> None:
        group, action = self.group, self.group.overtaking_action
        looked_at, until_s = len(group.log), group.loop.now + OVERTAKEN_S
        while group.loop.now < until_s:
            if any(_action_of(each) == action for each in group.log[looked_at:]):
                return
            looked_at = len(group.log)
            await asyncio.sleep(0.001)

    def _append(self, command: bytes) -> bytes:
        self.catch_up()
        self.group.log.append(command)
        result = self._apply_next()
        self.group.on_applied(self.machine, command, result)
        return result

    async def barrier(self, *, timeout_s: float) -> int:
        """See Consensus.barrier."""
        group = self.group
        self._check_leader()
        await asyncio.sleep(group.loop.chance.expovariate(1 / 0.0005))
        if group.leader != self.process.name or not group.reaches_majority(self.process.name):
            await asyncio.sleep(timeout_s)
            self.believes = 0
            raise Unavailable("no majority answers")
        self.catch_up()
        return self.applied

    def leader(self) -> str | None:
        """A hint."""
        return self.process.name if self.believes else self.group.leader

    def is_leader(self) -> bool:
        """A hint."""
        return self.group.leader == self.process.name or bool(self.believes)

    def status(self) -> ConsensusStatus:
        """A picture."""
        group = self.group
        members = tuple(MemberStatus(name, True, name == group.leader, group.levels[name]) for name in group.names)
        return ConsensusStatus(self.process.name, self.leader(), self.group.term, self.applied, True, members)

    async def failed(self) -> BaseException:
        """Never."""
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing."""


def _action_of(command: bytes) -> str:
    return pd_state_pb2.Command.FromString(command).WhichOneof("action") or ""


def start_member(loop: VirtualLoop, network: Network, group: FiatGroup, name: str, *, tier_url: str) -> Process:
    """Start one placement driver."""
    process = Process(name)
    machine = Machine(group.levels[name])
    consensus = FiatConsensus(group, process, machine)
    members = {each: MemberSettings(raft_address=f"{each}:1", api_address=f"{each}:{API_PORT}") for each in group.names}
    settings = PdSettings(
        name=name, data_dir=Path("/nowhere"), members=members, raft_secret="x", tier_url=tier_url,
        tier_prepare_ttl_ms=3_000, delete_grace_ms=5_000, scaling_minute_ms=100,
        scale_timeout_ms=1_000, retention_interval_ms=500,
        repair_after_ms=group.repair_after_ms, orphan_quiet_ms=ORPHAN_QUIET_MS,
        repack_target_bytes=group.repack_rules.target_bytes, repack_min_age_ms=group.repack_rules.min_age_ms,
        repack_trimmed_fraction=group.repack_rules.trimmed_fraction,
    )  # fmt: skip
    driver = Driver(settings, consensus, machine)
    driver.tier_trials = NoTrials()  # type: ignore[assignment]
    service: Any = Service(network, process, f"{name}:{API_PORT}")
    add_services(driver, service)

    async def work() -> None:
        await consensus.start()
        if group.has_audit:
            loop.spawn(process, AuditWriter(driver, driver.api_addresses, None, None).run())
        while True:
            with contextlib.suppress(RangelogError):
                await driver.reconcile()
            await asyncio.sleep(RECONCILE_INTERVAL_S)

    loop.spawn(process, work())
    return process
