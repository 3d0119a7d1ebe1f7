"""What operators do and what wears on: a drain, another placement driver, a slow server that reports, a tier that is away.

What holds: `heal` leaves the cluster as it was: every range server takes replicas, the group has its three members, the tier
is where it was. The calls are those of `pdctl server drain`, `pdctl server uncordon`, `pdctl pd replace` and `transfer-leader`.
Those that take half a minute, or leave a group of another make, only when asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import grpc

from rangelog_cli.local.plan import PdPlan
from rangelog_cli.local.ports import free_ports
from rangelog_core.errors import NotLeader, RangelogError, RequestTimeout, Unavailable
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, members_pb2, operations_pb2
from tests.chaos.chaos_cluster import PDS, System
from tests.chaos.chaos_faults import Fault
from tests.chaos.chaos_health import hot_ranges
from tests.support.waiting import WaitRanOut, eventually

CALL_S = 10.0
CALLED_OFF_SHARE = 0.4
CALLED_OFF_AFTER_S = (0.1, 2.0)
DRAINED_WITHIN_S = 60.0
STOPPED_S = (0.1, 0.4)
"""A burst of a gray server; much shorter than the silence after which a server counts as dead."""
GOES_ON_S = (0.05, 0.2)
EXTRA_PD = "pd4"
CHANGED_WITHIN_S = 60.0
ENDS_WITHIN_S = 30.0
TIERED_WITHIN_S = 120.0

_Found = TypeVar("_Found")
RangeKey = tuple[str, int, int]
"""Stream, its id, range."""


def call(system: System, work: Callable[[PdClient], Coroutine[Any, Any, _Found]]) -> _Found:
    """Run `work` with a connection to the placement drivers, as pdctl does."""

    async def run() -> _Found:
        pd = PdClient(system.cluster.pd_addresses)
        try:
            return await work(pd)
        finally:
            await pd.close()

    return asyncio.run(run())


class Drained(Fault):
    """A range server is drained under load, or the drain is called off half-way; then it takes replicas again."""

    name = "drained"
    side = "all"
    hold_s = (0.5, 2.0)
    _victim = ""
    _is_drained = False

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.a_range_server()
        self._set_mode("DRAINING")
        if self.dice.random() < CALLED_OFF_SHARE:
            self.interrupts.wait(self.dice.uniform(*CALLED_OFF_AFTER_S))
            return f"{self._victim}, called off with {self._ranges_left()} ranges left"
        began_s = time.monotonic()
        try:
            eventually(lambda: not self._ranges_left(), f"{self._victim} is not drained", DRAINED_WITHIN_S)
        except WaitRanOut as error:
            raise AssertionError(f"{error}; left: {str(self._describe()).replace(chr(10), ' ')}") from None
        self._is_drained = True
        return f"{self._victim}, drained in {time.monotonic() - began_s:.1f} s"

    def heal(self) -> None:
        """Uncordon it. Nothing may have come to it since it was drained."""
        victim, drained, self._is_drained = self._victim, self._is_drained, False
        if not victim:
            return
        try:
            left = self._ranges_left() if drained else 0
            assert not left, f"{victim} was drained, and has {left} ranges"
        finally:
            self._set_mode("ACTIVE")
            self._victim = ""

    def _set_mode(self, mode: str) -> None:
        request = operations_pb2.SetServerModeRequest(
            request_id=uuid.uuid4().hex, server=self._victim, mode=f"SERVER_MODE_{mode}"
        )
        answer = call(self.system, lambda pd: pd.call(request, operations_pb2.SetServerModeResponse, timeout_s=CALL_S))
        assert answer.server.mode == common_pb2.ServerMode.Value(f"SERVER_MODE_{mode}"), answer

    def _ranges_left(self) -> int:
        """How many ranges it has left; one that has not reported has an unknown number, at least one."""
        found = self._describe()
        return found.open_count + found.sealed_count + found.copying_count or int(not found.reported)

    def _describe(self) -> operations_pb2.DescribeDrainResponse:
        request = operations_pb2.DescribeDrainRequest(server=self._victim, listed_max=1)
        return call(self.system, lambda pd: pd.call(request, operations_pb2.DescribeDrainResponse, timeout_s=CALL_S))


class GrayServer(Fault):
    """A range server stands still most of the time, in bursts so short that its heartbeats come: slow, and not dead."""

    name = "gray-server"
    side = "all"
    hold_s = (4.0, 8.0)
    _victim = ""
    _thread: threading.Thread | None = None

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.a_range_server()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._stutter, name="gray", daemon=True)
        self._thread.start()
        return self._victim

    def heal(self) -> None:
        """See Fault."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _stutter(self) -> None:
        while not self._stop.is_set():
            try:
                self.system.cluster.pause(self._victim)
                self._stop.wait(self.dice.uniform(*STOPPED_S))
            finally:
                self.system.cluster.resume(self._victim)
            self._stop.wait(self.dice.uniform(*GOES_ON_S))


class PdReplaced(Fault):
    """A placement driver, at times the leader, is replaced by a fourth one under load; then it comes back in that one's place.

    Only when asked for: from then on it is a member that joined, which has to be added again if its disk is lost.
    """

    name = "pd-replaced"
    side = "all"
    by_default = False
    hold_s = (0.5, 2.0)
    LEADER_SHARE = 0.5
    _victim = ""

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(PDS)
        leads = self.dice.random() < self.LEADER_SHARE
        if leads:
            self._transfer(victim)
        address = self.system.hosts.get(EXTRA_PD) or self.system.add_host(EXTRA_PD)
        api, raft = free_ports(2, taken=self.system.cluster.plan.ports().values())
        self._replace(victim, PdPlan(EXTRA_PD, api, raft, address))
        self._victim = victim
        return f"{victim}{', which led,' if leads else ''} by {EXTRA_PD}"

    def heal(self) -> None:
        """On an empty disk it joins again and replaces the fourth one."""
        victim, self._victim = self._victim, ""
        if victim:
            self._replace(EXTRA_PD, next(pd for pd in self.system.cluster.plan.pds if pd.name == victim))
            del self.system.cluster.placement_drivers[EXTRA_PD]

    def _transfer(self, name: str) -> None:
        request = members_pb2.TransferLeadershipRequest(name=name)
        found = call(self.system, lambda pd: pd.call(request, members_pb2.TransferLeadershipResponse, timeout_s=CALL_S))
        assert found.leader == name, f"{found.leader} leads after leadership was handed to {name}"

    def _replace(self, old: str, new: PdPlan) -> None:
        """Start the new one, have it replace the old one, and wait until that has ended by itself."""
        cluster = self.system.cluster
        through = next(pd.api_address for pd in cluster.plan.pds if pd.name not in (old, new.name))
        shutil.rmtree(cluster.directory / new.name, ignore_errors=True)
        process = cluster.placement_drivers[new.name] = self.system.joining_pd(new, through)
        process.start()
        process.wait_ready()
        request = members_pb2.AddMemberRequest(
            name=new.name, raft_address=new.raft_address, api_address=new.api_address, replaces=old
        )
        call(self.system, lambda pd: pd.call(request, members_pb2.AddMemberResponse, timeout_s=CALL_S))
        eventually(lambda: self._is_changed(old, new.name), f"{new.name} does not replace {old}", CHANGED_WITHIN_S)
        ended = cluster.placement_drivers[old]
        assert ended.wait(ENDS_WITHIN_S) == 0, f"{old} was removed, and ended with {ended.returncode}"

    def _is_changed(self, old: str, new: str) -> bool:
        request = members_pb2.ListMembersRequest()
        try:
            found = call(self.system, lambda pd: pd.call(request, members_pb2.ListMembersResponse, timeout_s=CALL_S))
        except (NotLeader, RequestTimeout, Unavailable):
            return False  # the leader changes just now
        voters = {each.name: each.voter for each in found.members}
        return voters.get(new, False) and old not in voters and not found.passing


class TierAway(Fault):
    """The object store is away for longer than an upload may take and a check of it waits; then all of it is uploaded."""

    name = "tier-away"
    side = "all"
    by_default = False
    hold_s = (26.0, 32.0)
    heals_within_s = 120.0
    _away: Path | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._held_back: set[RangeKey] = set()

    def inject(self) -> str:
        """See Fault. A file takes the directory's place, so that nobody makes the directory anew."""
        tier = self._directory()
        self._away = tier.with_name(f"{tier.name}.away")
        tier.rename(self._away)
        tier.touch()
        return tier.name

    def heal(self) -> None:
        """See Fault. What was sealed meanwhile must be held back, else it was not away."""
        away, self._away = self._away, None
        if away is None:
            return
        try:
            self._held_back = self._not_tiered()
        finally:
            tier = self._directory()
            tier.unlink()
            away.rename(tier)
        assert self._held_back, "nothing was to be uploaded while the tier was away"

    def afterwards(self) -> str:
        """Everything that was held back has reached the tier, or was trimmed."""
        left = self._held_back

        def tiered() -> bool:
            nonlocal left
            with contextlib.suppress(grpc.RpcError, RangelogError):
                left = self._held_back & self._not_tiered()
            return not left

        try:
            eventually(tiered, "ranges are not in the tier", TIERED_WITHIN_S)
        except WaitRanOut:
            stream, _, index = min(left)
            return f"{len(left)} of {len(self._held_back)} ranges are not in the tier, such as {stream}/{index}"
        return ""

    def _not_tiered(self) -> set[RangeKey]:
        return {
            (plan.name, each.stream_id, each.index)
            for plan in self.system.streams
            for each in hot_ranges(self.system, plan.name)
            if each.state == common_pb2.RANGE_STATE_SEALED and each.tiered_end_offset < each.end_offset
        }

    def _directory(self) -> Path:
        return Path(unquote(urlsplit(self.system.cluster.plan.tier_url).path))
