"""A whole cluster of production code in one deterministic run: 3 placement drivers, 5 range servers, clients, object store.

Nothing of the product is replaced but what touches the machine: clock, chance, sockets, gRPC's transport, disks, threads,
the object store. The ghost checks here look at what no server can see: at the bytes on all disks.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import grpc
import pyarrow.parquet as pq

import rangelog._append.batch_builder
import rangelog_tier.opening
from rangelog._read.arrow_chunk import records_from_arrow
from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.errors import SealBelowFloor, WriterFenced
from rangelog_core.net.owner_calls import journal_of
from rangelog_core.versions import LEVEL_BROKERS
from rangelog_pd.state import tier_stores
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL, LEVEL_EMPTY_RANGES, LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_tier.parquet import write_object
from rangelog_tier.routed_store import RoutedStore
from tests.simulation import virtual_audit
from tests.simulation.topic_commands import TRIMMING, corner_cases_of
from tests.simulation.virtual_broker import virtual_brokers
from tests.simulation.virtual_doors import virtual_doors
from tests.simulation.virtual_fields import with_fields
from tests.simulation.virtual_hosts import MEMBERS_CHANGED, SharedHosts
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_log_keys import VirtualLogKeys
from tests.simulation.virtual_network import Channel, Network
from tests.simulation.virtual_objects import VirtualObjects
from tests.simulation.virtual_packing import Packing, rules_of
from tests.simulation.virtual_pd import API_PORT, REPAIR_SOON_MS, FiatGroup, start_member
from tests.simulation.virtual_server import VirtualServer, virtual_servers
from tests.simulation.virtual_tier import TIER_URL, VirtualTier
from tests.simulation.virtual_time import Process, VirtualLoop, virtual_world

if TYPE_CHECKING:
    from rangelog_broker.journal.joint_machine import JointMachine
    from rangelog_broker.shards.shard import OwnedShard
    from tests.simulation.virtual_topic_ambushes import TopicAmbushes

PDS = ["pd1", "pd2", "pd3"]
SERVERS = 5
TRACE_LINES_MAX = 2_000_000


class Violation(AssertionError):
    """A broken promise."""


class VirtualCluster:
    """See the module. Make it with `virtual_cluster`."""

    def __init__(self, seed: int, loop: VirtualLoop, temporary: Path, *, keep_trace: bool) -> None:
        self.seed = seed
        self.loop = loop
        self.chance = loop.chance
        self.counters: Counter[str] = Counter()
        self.trace_lines: list[str] = []
        self._keep_trace = keep_trace
        self._digest = blake2b(digest_size=8)
        self.network = loop.network = Network(loop, self.trace)
        self.tier = VirtualTier(self.chance, seed)
        self.trimmed_before_packing: dict[int, int] = {}
        """The trim offsets of streams as the cluster version rose to that of packing."""
        self.pds: dict[str, Process] = {}
        self.group = FiatGroup(loop, self.network, PDS)
        self.group.on_applied = self._applied
        self.group.notes = self.note
        self.pd_addresses = [f"{name}:{API_PORT}" for name in PDS]
        self.servers = {
            name: VirtualServer(loop, self.network, name, self.pd_addresses, temporary, VirtualLogKeys(seed, name))
            for name in [f"s{number}" for number in range(1, SERVERS + 1)]
        }
        for server in self.servers.values():
            server.notes = self.note
            server.moments = lambda moment, host: self.ambush(moment, host)
        self.packing = Packing(self)
        self.hosts = SharedHosts(self)
        self.ambush: Callable[[str, str], None] = _nothing
        self.on_step: Callable[[str], None] = _no_step
        """Called when a command takes effect, and when a directive is given."""
        self.on_own_scale: Callable[[], object] = lambda: None
        self.topic_ambushes: TopicAmbushes | None = None
        self.open_shards: dict[OwnedShard, Process] = {}
        """Every shard that a broker has restored, with its process."""
        self.coordinators: dict[int, JointMachine] = {}
        """By number of a journal: the state of the owner that has opened it last."""
        self.sealed_ends: dict[tuple[int, int], int] = {}
        self.trims: dict[int, list[tuple[float, int]]] = {}
        """When the stream of a shard was trimmed, and to where."""
        self._copies_at_seal: dict[tuple[int, int], int] = {}
        self._given_away: dict[tuple[int, int], set[str]] = {}
        """Servers that gave their place in a range to another server while they were drained."""
        self.range_counts: dict[int, int] = {}
        self.batches_refused = 0.0
        """How often the owner of a shard has no room for a batch."""
        self.lives: dict[int, Life] = {}
        """Streams by their ids, those that were deleted too."""

    def start(self) -> None:
        """Start everything. In every third run the placement drivers are upgraded as they are killed and started again."""
        if self.seed % 3 == 1:
            self.group.begin_at_an_earlier_level()
        if self.seed % 2:
            self.group.repair_after_ms = REPAIR_SOON_MS
        self.group.repack_rules = rules_of(self.seed)
        self.group.has_audit = virtual_audit.is_on(self.seed)
        for name in PDS:
            self.start_pd(name)
        self.loop.call_soon(self.group.watch)
        for server in self.servers.values():
            server.start()

    def start_pd(self, name: str) -> None:
        """Start a placement driver's process."""
        if name in self.pds:
            self.group.levels[name] = FEATURE_LEVEL
        self.pds[name] = start_member(self.loop, self.network, self.group, name, tier_url=TIER_URL)

    def kill_pd(self, name: str) -> None:
        """Its memory is gone; its log is not."""
        self.pds[name].alive = False
        self.network.died(self.pds[name], silently=False)

    # ---- what happened

    def trace(self, line: str) -> None:
        """One event of the run."""
        self._digest.update(f"{self.loop.now:.9f} {line}\n".encode())
        if self._keep_trace and len(self.trace_lines) < TRACE_LINES_MAX:
            self.trace_lines.append(f"{self.loop.now:12.6f} {line}")

    def note(self, what: str) -> None:
        """Count something, and trace it."""
        self.counters[what] += 1
        self.trace(what)

    @property
    def trace_hash(self) -> str:
        """Of all events so far."""
        return self._digest.hexdigest()

    def fail(self, what: str) -> None:
        """Stop the run."""
        raise Violation(what)

    def bury(self) -> None:
        """Let go of everything that never ended, so that it goes with the loop."""
        self.ambush = _nothing
        self.on_step = _no_step
        self.topic_ambushes = None
        self.open_shards.clear()
        self.coordinators.clear()
        self.network.links.clear()
        self.network.listeners.clear()
        self.network.services.clear()
        self.group.members.clear()
        self.servers.clear()

    def follows_level(self, group: str) -> bool:
        """Whether the journal of a group goes by the rules of the latest level: from then on it does so for ever."""
        machine = self.coordinators.get(journal_of(group)[1])
        return machine is not None and machine.level >= LEVEL_BROKERS

    def life_of(self, name: str, stream_id: int) -> Life:
        """The life that has this id; a reader may meet it before its maker hears that it was made."""
        return self.lives.setdefault(stream_id, Life(name, f"{name}{stream_id}", stream_id))

    def is_well(self) -> bool:
        """Whether all servers run, and everybody hears everybody."""
        servers = all(server.up and not server.life.paused for server in self.servers.values())
        return servers and not self.network.cuts

    def check_deleted(self, life: Life, who: str) -> None:
        """Who is told that there is no such stream is told so only of one that somebody deletes."""
        self.note("a deleted stream was not found")
        if not life.deleting:
            self.fail(f"{who} was told that there is no stream {life.label}, and nobody deleted it")

    # ---- ghosts: what is on the disks

    @property
    def state(self) -> Any:
        """The placement driver's state, as far as it is committed."""
        machine = max(self.group.members.values(), key=lambda member: member.applied).machine
        return machine.state

    def range_at(self, offset: int, stream_id: int = 1) -> common_pb2.Range | None:
        """The range that covers an offset."""
        for each in reversed(list(self.state.ranges.of(stream_id).values())):
            if each.start_offset <= offset:
                return each  # type: ignore[no-any-return]
        return None

    def check_durable(self, offset: int, what: str, stream_id: int = 1) -> None:
        """Two disks of the range's set hold this offset, or those that were left at its seal, or the object store does.

        A disk that was lost counts for its server, also when the set already names the server's next incarnation: what
        the fault took is not the product's fault, and the copy for the new disk may still be on its way. A server that is
        drained keeps the copy whose place it gave away until every member is whole, so that counts as long as it is there.
        """
        source = self.range_at(offset, stream_id)
        if source is None:
            if stream_id not in self.state.streams or offset < self.state.streams[stream_id].trim_offset:
                return  # read before the trim was heard of; the range is gone since
            raise Violation(f"{what}: offset {offset} is in no range")
        if source.tiered_end_offset > offset:
            return
        key = (source.stream_id, source.index)
        copies = 0
        for member in source.replicas:
            disks = self.servers[member.server].disks_up_to(member.incarnation)
            copies += any(disk.holds(key, offset) for disk in disks)
        members = {member.server for member in source.replicas}
        for name in self._given_away.get(key, set()) - members:
            copies += self.servers[name].disk.holds(key, offset)
        if copies < self._copies_at_seal.get(key, source.acks):
            self.fail(f"{what}: offset {offset} of range {source.index} is durable on {copies} disks")

    def _applied(self, machine: Machine, command: bytes, result: bytes) -> None:
        machine.state.validate()
        parsed = pd_state_pb2.Command.FromString(command)
        action = parsed.WhichOneof("action")
        self._note_repacks(machine, parsed, result)
        if action == "seal_ranges":
            self.ambush("seal_range", "")
        if action in ("seal_range", "open_writer"):
            self.ambush(action, "")
            if pd_state_pb2.CommandResult.FromString(result).error_code == WriterFenced.code:
                self.note("an old epoch's seal was refused")
            if pd_state_pb2.CommandResult.FromString(result).error_code == SealBelowFloor.code:
                self.note("a seal refused below the floor")
        if not pd_state_pb2.CommandResult.FromString(result).error_code:
            for case in corner_cases_of(parsed):
                self.note(case)
            self.on_step(str(action))
            if action == "start_own_scale":
                self.on_own_scale()
            if action in TRIMMING:
                self._note_trims(machine)
            if action == "set_cluster_version" and machine.state.cluster_version >= LEVEL_PACKING:
                for stream_id, stream in machine.state.streams.items():
                    self.trimmed_before_packing.setdefault(stream_id, stream.trim_offset)
            if action == "replace_replica" and parsed.replace_replica.lost.server in machine.state.modes.draining:
                moved = parsed.replace_replica
                self._given_away.setdefault((moved.stream_id, moved.range_index), set()).add(moved.lost.server)
        if action in ("create_range", "seal_range", "seal_ranges"):
            self._check_no_empty_ranges(machine)
        if action in MEMBERS_CHANGED:
            self.hosts.check(machine)
        if action in ("commit_object", "commit_repack"):
            self._check_object(machine.state.objects.get(getattr(parsed, action).object_id))
        for key, each in machine.state.ranges.items():
            if each.state != common_pb2.RANGE_STATE_SEALED:
                continue
            known = self.sealed_ends.get(key)
            if known is None:
                self.sealed_ends[key] = each.end_offset
                self._check_two_copies(each)
            elif known != each.end_offset:
                self.fail(f"the end of range {each.index} changed from {known} to {each.end_offset}")

    def _note_repacks(self, machine: Machine, command: pd_state_pb2.Command, result: bytes) -> None:
        if pd_state_pb2.CommandResult.FromString(result).error_code:
            return
        if command.HasField("prepare_repack"):
            self.packing.prepared(machine.state, command.prepare_repack)
        elif command.HasField("commit_repack"):
            self.packing.check_made(machine.state, machine.state.objects[command.commit_repack.object_id])

    def _note_trims(self, machine: Machine) -> None:
        for shard in machine.state.topics.shards.values():
            known = self.trims.setdefault(shard.stream_id, [(0.0, 0)])
            trim_offset = machine.state.streams[shard.stream_id].trim_offset
            if trim_offset > known[-1][1]:
                known.append((self.loop.now, trim_offset))

    def _check_no_empty_ranges(self, machine: Machine) -> None:
        """A new range takes the place of an empty one, once all placement drivers know of it."""
        for stream_id, stream in machine.state.streams.items():
            known, self.range_counts[stream_id] = self.range_counts.get(stream_id, 0), stream.range_count
            if stream.range_count == known or machine.state.cluster_version < LEVEL_EMPTY_RANGES:
                continue
            before = list(machine.state.ranges.of(stream_id).values())[-2:-1]
            if before and before[0].start_offset == before[0].end_offset:
                self.fail(f"range {before[0].index} of stream {stream_id} is empty and was left in the list")

    def _check_object(self, described: common_pb2.Object | None) -> None:
        """As an object begins to count, the store holds just the bytes that it is described by."""
        if described is None or described.state != common_pb2.OBJECT_STATE_COMMITTED:
            return  # the commit was refused
        stored = self.tier.stored(self.tier_url, described.key)
        if described.digest != f"sha256:{sha256(stored).hexdigest()}":
            self.fail(f"object {described.key} was committed, but the store holds {len(stored)} other bytes")

    @property
    def tier_url(self) -> str:
        """The URL of all stores of the tier, as of the last command."""
        return tier_stores.tier_url(self.state, TIER_URL)

    def is_whole(self, each: common_pb2.Range) -> bool:
        """Whether every member of a range's set is who it was and has what it should, or the object store has all of it."""
        sealed = each.state == common_pb2.RANGE_STATE_SEALED
        if sealed and each.tiered_end_offset == each.end_offset:
            return True
        for member in each.replicas:
            server = self.servers[member.server]
            identity = server.disk.identity
            if identity is None or identity.incarnation != member.incarnation:
                return False
            replica = server.store.replicas.get((each.stream_id, each.index)) if server.store else None
            if sealed:
                if replica is None or not replica.core.complete:
                    return False
            elif replica is not None and replica.core.trust.value != "sound":
                return False
        return True

    def _check_two_copies(self, source: common_pb2.Range) -> None:
        """As the end is committed, everything below it is or was on two disks, or is on all that are left of its set.

        A disk that rotted in this range is not left: its replica vouches for nothing.
        """
        servers: Any = self.state.servers
        span = ((source.stream_id, source.index), source.start_offset, source.end_offset)
        ends: list[int] = []
        left: list[int] = []
        for member in source.replicas:
            disks = self.servers[member.server].disks_of(member.incarnation)
            ends.append(max((disk.durable_span(*span) for disk in disks), default=source.start_offset))
            rotten = any(disk.has_failed(span[0]) for disk in disks)
            if servers[member.server].server.incarnation == member.incarnation and not rotten:
                left.append(ends[-1])
        held = sum(end >= source.end_offset for end in ends)
        held_left = sum(end >= source.end_offset for end in left)
        if held < source.acks:
            self._copies_at_seal[span[0]] = max(1, min(source.acks, len(left)))
        if held < source.acks and held_left < min(source.acks, len(left)):
            self.fail(f"range {source.index} was sealed at {source.end_offset}, but the disks hold it up to {ends}")


@functools.cache
def warm_up() -> None:
    """Load what is loaded at first use: modules that draw chance as they load would make the first seed another one.

    What is there then stays: no collection of garbage looks at it again.
    """
    data = encode_batch(
        stream_id=1, range_index=0, epoch=1, base_offset=0, timestamps_ms=[1], values=[b"v"], keys=[b"k"],
        headers=[encode_headers({"h": b"1"})],
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="rangelog-simulation-") as directory:
        path = Path(directory) / "object"
        write_object(path, [data], stream_id=1, stream_name="s", range_index=0, epoch=1, start_offset=0, end_offset=1)
        (table,) = pq.read_table(path).to_batches()
        assert [record.value for record in records_from_arrow(table)] == [b"v"]
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def virtual_cluster(seed: int, *, keep_trace: bool = False) -> Iterator[VirtualCluster]:
    """A cluster that is not started yet, and everything patched that it needs."""
    warm_up()
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rangelog-simulation-")))
        loop = stack.enter_context(virtual_world(seed))
        stack.enter_context(virtual_servers())
        cluster = VirtualCluster(seed, loop, temporary, keep_trace=keep_trace)
        stack.enter_context(virtual_brokers(cluster.network))
        stack.enter_context(virtual_doors(cluster.network))

        def channel(address: str, options: Any = None) -> Channel:
            return Channel(cluster.network, address)

        def opened(url: str, *, create: bool = False, keys: None = None) -> VirtualObjects | RoutedStore:
            return cluster.tier.open(url)

        for target, name, value in (
            (grpc.aio, "insecure_channel", channel),
            (rangelog_tier.opening, "open_object_store", opened),
            (rangelog._append.batch_builder, "encode_batch", with_fields(seed, encode_batch)),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        try:
            yield cluster
        finally:
            cluster.bury()


def _no_step(step: str) -> None:
    """See on_step."""


def _nothing(moment: str, host: str) -> None:
    """Nobody lies in wait."""
