"""One placement driver behind its API: proposes commands, reads behind a barrier, runs the reconcilers as leader.

What holds: a reply holds a command's result after a majority has it, or a read after a barrier; a follower names the leader;
decisions that need a clock or the heartbeats are made here and put into the command.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import InvalidArgument, NotLeader, OutcomeUnknown, RangelogError, Unavailable
from rangelog_core.net.acting import Represented
from rangelog_core.net.principals import Principal
from rangelog_pd.broker_probe import BrokerProbes
from rangelog_pd.cluster_time import ClusterTime
from rangelog_pd.consensus.interface import Consensus
from rangelog_pd.counts import OK, DriverCounts
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile import finalizing
from rangelog_pd.reconcile.audit_trail import AuditTrail, RefusedCall
from rangelog_pd.reconcile.broker_view import BrokersView
from rangelog_pd.reconcile.commands import commands
from rangelog_pd.reconcile.owner_commands import assign_command, owner_commands
from rangelog_pd.reconcile.rebalance import Rebalance
from rangelog_pd.reconcile.shortfalls import Shortfalls
from rangelog_pd.reconcile.snapshot_schedule import SnapshotSchedule
from rangelog_pd.reconcile.task_board import TaskBoard
from rangelog_pd.reconcile.topic_upkeep import TopicUpkeep
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.reconcile.watches import Watches
from rangelog_pd.saving import Saves
from rangelog_pd.settings import PdSettings
from rangelog_pd.state import tier_stores
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.operations import level_of, needed_level
from rangelog_pd.state.restore import being_restored
from rangelog_pd.state.snapshot import Frozen
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import LEVEL_BROKERS, check_enabled
from rangelog_pd.tier_check import TierTrials, leader_watch
from rangelog_pd.token_signer import TokenSigner
from rangelog_proto.v1 import common_pb2, pd_state_pb2, restore_pb2
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.tokens.verifier import NO_TRUST, TokenTrust
from rangelog_tier.encryption_keys import key_provider, keys_of_environment

PROPOSE_TIMEOUT_S = 2.5
BARRIER_TIMEOUT_S = 2.0
"""Both below the limit of a client's try at one member, so that the client gets the driver's error."""
REQUEST_ID_LENGTH_MAX = 100
CLOCK_OFF_MS = 60_000
_SESSION_BITS = 20

_T = TypeVar("_T", bound=Message)
_R = TypeVar("_R")
_log = logging.getLogger("rangelog.pd")


class Driver:
    """One placement driver behind its API. Bound to one event loop."""

    def __init__(self, settings: PdSettings, consensus: Consensus, machine: Machine) -> None:
        self.settings = settings
        self.consensus = consensus
        self.machine = machine
        """What changes in it is read under the lock."""
        self.view = ClusterView(
            settings.server_suspect_ms,
            settings.server_dead_ms,
            settings.repair_after_ms,
            settings.orphan_quiet_ms,
            settings.repack_rules,
            settings.repack_concurrency,
        )
        self.counts = DriverCounts()
        self.tasks = TaskBoard()
        self.shortfalls = Shortfalls()
        self.watches = Watches()
        self.saves = Saves()
        self.brokers = BrokersView(settings.server_dead_ms)
        self.broker_probes = BrokerProbes()
        self.topics = TopicUpkeep(settings.scaling_minute_ms, settings.scale_timeout_ms, settings.retention_interval_ms)
        self.encryption_keys = (
            key_provider(settings.encryption_keys_dir, settings.encryption_kms_key_id) or keys_of_environment()
        )
        """None: nothing that goes to the tier needs to be encrypted."""
        self.tier_watch = leader_watch(self.tier_url, consensus.is_leader, self.encryption_keys)
        self.tier_trials = TierTrials()
        self.rebalance: Rebalance | None = None
        """The last one that was asked of this leader."""
        self.tier_snapshots = SnapshotSchedule(settings.tier_snapshot_interval_ms, settings.tier_snapshot_soon_ms)
        self.audit = AuditTrail()
        self.audit_problem = ""
        """Why the last try to write the audit log to its stream failed."""
        self.token_signer = TokenSigner()
        self.quotas = QuotaGuard()
        self.quotas.refresh = self._load_quotas
        self._trust = NO_TRUST
        self._clock = ClusterTime()
        self._clock_is_off = False
        self._leading_term: int | None = None

    # ---- time

    @staticmethod
    def now_ms() -> float:
        """Return the monotonic clock in ms, for leases."""
        return time.monotonic() * 1000

    @staticmethod
    def wall_ms() -> int:
        """Return the wall clock in ms, for people, and as one of the clocks of cluster time."""
        return time.time_ns() // 1_000_000

    def time_ms(self) -> int:
        """Return cluster time in ms, for the dates of the state and all comparisons with them."""
        known_ms = self.machine.state.time_ms  # one number, so no lock is needed
        if self._leading_term is None:
            return known_ms or self.wall_ms()
        return max(known_ms, self._clock.read(self.now_ms(), self.wall_ms()))

    def heard_clock(self, server: str, wall_ms: int) -> None:
        """Note the wall clock of a range server."""
        self._clock.heard(server, self.now_ms(), wall_ms)
        if self._clock.provisional:
            self._judge_time()

    def _judge_time(self) -> None:
        with self.state() as state:
            now_ms = self.now_ms()
            health = {
                name: self.view.health(state, name, server.server.incarnation, now_ms)
                for name, server in state.servers.items()
            }
        alive = [name for name, each in health.items() if each is ServerHealth.ALIVE]
        expected = sum(each is not ServerHealth.DEAD for each in health.values())
        self._clock.judge(alive, max(expected, min(1, len(health))))

    def _mind_own_clock(self) -> None:
        """Log once when this leader's wall clock differs from cluster time."""
        self.time_ms()
        off_ms = self._clock.leader_is_off_by_ms(self.now_ms())
        is_off = abs(off_ms) > CLOCK_OFF_MS
        if is_off and not self._clock_is_off:
            way = "ahead of" if off_ms > 0 else "behind"
            _log.warning(
                "the wall clock of %s is %d s %s cluster time: check the clocks; ages go by cluster time",
                self.settings.name, abs(off_ms) // 1000, way,
            )  # fmt: skip
        self._clock_is_off = is_off

    # ---- consensus

    @contextmanager
    def state(self) -> Iterator[State]:
        """Return the applied state under the lock; the caller must not await inside."""
        with self.consensus.lock:
            yield self.machine.state

    def check_restored(self, before: restore_pb2.RestoreMark | None = None) -> restore_pb2.RestoreMark:
        """Return the mark of restores. Raises Unavailable during one, or when it is another one than before."""
        mark = self.machine.state.restore  # one reference, and its message never changes: no lock is needed
        if mark.phase == restore_pb2.RESTORE_PHASE_RUNNING or (before is not None and mark != before):
            raise being_restored(mark)
        return mark

    def freeze(self) -> Frozen:
        """Return the state as it is, to be encoded later. Called with the lock: inside `state`."""
        return self.machine.freeze()

    def fill_in(self, *targets: common_pb2.Range) -> None:
        """Set the address and health of each replica of the ranges."""
        with self.state() as state:
            for target, filled in zip(targets, self.view.fill_in(state, targets, self.now_ms()), strict=True):
                target.CopyFrom(filled)

    def tier_url(self) -> str:
        """Return where objects are and go, by the setting and by what was set since; empty: there is no tier."""
        with self.state() as state:
            return tier_stores.tier_url(state, self.settings.tier_url)

    def put_versions(self, response: Any) -> None:
        """Put the versions of the rights in force (0: not enforced), of the token trust and of the quotas into an answer."""
        with self.state() as state:
            response.rights_version = state.rights.version_in_force
            response.tokens_version = state.tokens.version
            response.quotas_version = state.quotas.version

    def _load_quotas(self) -> None:
        if self.quotas.book.version != self.machine.state.quotas.version:
            with self.state() as state:
                self.quotas.book.load(state.quotas.quotas.values(), state.quotas.version)

    def token_trust(self) -> TokenTrust:
        """Return what this member checks tokens against: its own state."""
        with self.state() as state:
            if self._trust.version != state.tokens.version or self._trust.cluster_id != state.cluster_id:
                keys = {each.key_id: each.public_key for each in state.tokens.keys.values()}
                self._trust = TokenTrust(state.cluster_id, state.tokens.version, keys, frozenset(state.tokens.revoked))
            return self._trust

    async def catch_up(self) -> None:
        """Wait until the state has all that leaders before this one acknowledged. Raises NotLeader with a hint, Unavailable."""
        if self._leading_term != self.consensus.status().term:
            await self.barrier()

    async def audits(self) -> bool:
        """Return whether the audit log is on. Raises NotLeader with a hint, Unavailable."""
        await self.catch_up()
        return self.machine.state.audit.enabled

    def knows(self, action: str) -> bool:
        """Whether all members know commands of this action, so that it may be proposed."""
        return self.knows_level(level_of(action))

    def knows_level(self, level: int) -> bool:
        """Whether all members have a feature level."""
        return level <= self.machine.state.cluster_version

    def check_level(self, level: int, what: str) -> None:
        """Raise Unavailable unless all members have a feature level."""
        check_enabled(level, self.machine.state.cluster_version, what)

    def is_repeat(self, action: str, request_id: str) -> bool:
        """Whether a request was carried out before: then it is proposed whatever a handler would say of a first one."""
        with self.consensus.lock:
            return self.machine.has_result(action, request_id)

    async def barrier(self) -> None:
        """Wait until the state includes all acknowledged commands. Raises NotLeader with a hint, Unavailable."""
        try:
            await self.consensus.barrier(timeout_s=BARRIER_TIMEOUT_S)
        except NotLeader as error:
            raise self._hint() from error
        self._note_leading()

    async def propose_request(self, response: type[_T], request_id: str, **action: Message) -> _T:
        """Apply a client's command, which needs a request id: without one a retry would have a second effect."""
        if not request_id:
            raise InvalidArgument("the request id is missing: a retry of a command carries the id of its first try")
        return await self.propose(response, request_id, **action)

    async def propose(self, response: type[_T], request_id: str, **action: Message) -> _T:
        """Apply one command and return its response. Raises the command's error, NotLeader, OutcomeUnknown."""
        if len(request_id) > REQUEST_ID_LENGTH_MAX:
            raise InvalidArgument(f"a request id of {len(request_id)} characters; the limit is {REQUEST_ID_LENGTH_MAX}")
        command = pd_state_pb2.Command(request_id=request_id, **action)  # type: ignore[arg-type]
        self._date(command)
        try:
            result = await self._decide(command)
        except NotLeader as error:
            raise self._hint() from error
        self._tell_watchers()
        if isinstance(result, RangelogError):
            raise result
        return response.FromString(result)

    async def _decide(self, command: pd_state_pb2.Command) -> bytes | RangelogError:
        """Apply a complete command, and count it; return its response or its error. Raises the errors of consensus."""
        began_s, code = time.perf_counter(), OutcomeUnknown.code
        try:
            result = await self.consensus.propose(command.SerializeToString(), timeout_s=PROPOSE_TIMEOUT_S)
            try:
                response, code = response_of(result), OK
            except RangelogError as error:
                code = error.code
                return error
            return response
        except RangelogError as error:
            code = error.code
            raise
        finally:
            self.counts.command_ended(command.WhichOneof("action") or "none", code, time.perf_counter() - began_s)

    def _tell_watchers(self) -> None:
        """Wake the watches of streams that were just changed."""
        with self.state() as state:
            self.watches.follow(state)

    def _date(self, command: pd_state_pb2.Command, *, gated: bool = True) -> None:
        """Complete a command by its level and time. `gated`: refuse a level that not all members have."""
        action = command.WhichOneof("action") or ""
        command.DiscardUnknownFields()  # a later member would apply what this one does not know
        command.version = max(command.version, needed_level(command))
        if gated:
            check_enabled(command.version, self.machine.state.cluster_version, action)
        command.now_ms = self.time_ms()
        command.time_is_provisional = self._leading_term is None or self._clock.provisional

    async def at_leader(self, call: Awaitable[_R]) -> _R:
        """Return the result of a call of consensus. Raises its error; NotLeader with a hint."""
        try:
            return await call
        except NotLeader as error:
            raise self._hint() from error

    def api_address_of(self, name: str) -> str:
        """Return the address of a member's API; "" where it is not known."""
        for member in self.consensus.status().members:
            if member.name == name and member.api_address:
                return member.api_address
        return self.settings.members[name].api_address if name in self.settings.members else ""

    def api_addresses(self) -> list[str]:
        """Return the addresses of all members' API, as far as they are known."""
        names = [member.name for member in self.consensus.status().members]
        return [address for name in names if (address := self.api_address_of(name))]

    def note_refusal(self, principal: Principal | None, host: str, call: str, error: RangelogError) -> None:
        """Note that a call was refused for who made it: for the audit log, if this member leads."""
        if self._leading_term is not None and self.machine.state.audit.enabled:
            refusal = RefusedCall(str(principal or ""), call, error.code, self.through(principal))
            self.audit.refused(refusal, host, error.message, self.now_ms())

    def through(self, principal: Principal | None) -> str:
        """Return the broker that calls for a principal, as entries of the audit log name it; empty: no broker does."""
        if isinstance(principal, Represented) and self.knows_level(LEVEL_BROKERS):
            return str(principal.through)
        return ""

    def _hint(self) -> NotLeader:
        leader = self.consensus.leader()
        self._stop_leading()
        address = self.api_address_of(leader) if leader is not None and leader != self.settings.name else ""
        if leader is None or not address:
            return NotLeader("this placement driver does not lead, and knows of no leader")
        return NotLeader(f"this placement driver does not lead; {leader} does", address=address)

    def _stop_leading(self) -> None:
        """Clear the leader's memory after the end of a term of leadership."""
        if self._leading_term is not None:
            self._leading_term = None
            self.rebalance = None
            self.watches.clear(0)

    def _note_leading(self) -> None:
        """Start a term of leadership at its first barrier: leases count from here, and every server must report again."""
        term = self.consensus.status().term
        if self._leading_term != term:
            self._leading_term = term
            self.counts.leading_count += 1
            self.view.start_leading(self.now_ms())
            self.brokers.start_leading(self.now_ms())
            self.topics.start_leading()
            self._clock.begin(self.now_ms(), self.wall_ms(), self.machine.state.time_ms)
            self._judge_time()
            self.tasks.clear()
            self.rebalance = None
            self.shortfalls.clear()
            self.tier_snapshots.start_leading(self.now_ms())
            self.watches.clear(self.wall_ms() << _SESSION_BITS)
            self.tier_watch.recheck()
            self.audit.clear()
            _log.info("%s leads", self.settings.name)

    # ---- the leader's own work

    async def reconcile(self) -> None:
        """Run one round of the reconcilers. Does nothing on a follower."""
        if not self.consensus.is_leader():
            self._stop_leading()
            return
        began_s = time.perf_counter()
        try:
            await self.barrier()
            self._judge_time()
            self._mind_own_clock()
            time_ms = self.time_ms()
            with self.state() as state:
                named = bool(state.cluster_id)
                has_tier = bool(tier_stores.tier_url(state, self.settings.tier_url))
                wanted = commands(state, self.view, self.now_ms(), time_ms, has_tier=has_tier)
                self.shortfalls.follow(state, self.wall_ms())
                restoring = state.restore.phase == restore_pb2.RESTORE_PHASE_RUNNING
                self.view.upkeep.repairs.note_time(self.wall_ms())
                wanted += owner_commands(state.owners, self.brokers, self.now_ms())
                wanted += self.topics.commands(state, self.view.upkeep.sizes.get, self.now_ms(), time_ms)
                if self.rebalance is not None and not self.rebalance.done:
                    wanted += self.rebalance.commands(state, self.view, self.now_ms())
                if state.has_undated and not self._clock.provisional:
                    wanted.append(pd_state_pb2.Command(mark_log_ends=pd_state_pb2.MarkLogEnds()))  # to date them
            await self._upgrade_by_itself()
            if not named:
                await self.propose_own(
                    pd_state_pb2.Command(name_cluster=pd_state_pb2.NameCluster(cluster_id=uuid.uuid4().hex))
                )
            for command in () if restoring else wanted:
                await self.propose_own(command)
            await self._note_audit()
            self._tell_watchers()
            self.tasks.expire(self.wall_ms())
            self.counts.round_durations.observe(time.perf_counter() - began_s)
        except Unavailable as error:
            _log.debug("a round of reconciling was interrupted: %s", error)

    async def _note_audit(self) -> None:
        """Put outcomes and refusals into the audit log, if it is on."""
        notes = self.audit.take(self.now_ms())
        if not notes or not self.machine.state.audit.enabled:
            return
        command = pd_state_pb2.Command()
        command.note_audit.notes.extend(notes)
        try:
            await self.propose_own(command)
        except RangelogError:
            self.audit.put_back(notes)
            raise

    async def assign_owners(self) -> None:
        """Give owners to what has none, now rather than in the next round, which goes on where this one is interrupted."""
        with self.state() as state:
            wanted = assign_command(state.owners)
        if wanted is not None:
            try:
                await self.propose_own(wanted)
                self._tell_watchers()
            except RangelogError as error:
                _log.debug("owners are assigned in the next round: %s", error)

    async def _upgrade_by_itself(self) -> None:
        """Raise the cluster version once all members announce a higher feature level, unless that is left to an operator."""
        common = finalizing.common_level(each.feature_level for each in self.consensus.status().members)
        before = self.machine.state.cluster_version
        if finalizing.rises_by_itself(before, common, auto_finalize=self.settings.auto_finalize):
            await self.raise_cluster_version(common)

    async def raise_cluster_version(self, level: int) -> None:
        """Raise it to a level that all members have announced; the command needs this level, so that no other applies it."""
        _log.info("all placement drivers have feature level %d: it is the cluster version now", level)
        command = pd_state_pb2.Command(version=level)
        command.set_cluster_version.version = level
        await self.propose_own(command, gated=False)

    async def propose_own(self, command: pd_state_pb2.Command, *, gated: bool = True) -> None:
        """Apply a command of the leader's own; a refusal is logged. Raises NotLeader, OutcomeUnknown."""
        self._date(command, gated=gated)
        result = await self._decide(command)
        if isinstance(result, RangelogError):
            _log.info("%s: %s", command.WhichOneof("action"), result)
            return
        if command.HasField("start_own_scale"):
            own = command.start_own_scale
            _log.info("topic %d is scaled: %s", own.request.topic.topic_id, own.reason)
        elif command.HasField("cancel_scale"):
            _log.warning("topic %d: nobody carried out scale %d, which is cancelled", command.cancel_scale.topic_id,
                         command.cancel_scale.scale_id)  # fmt: skip
