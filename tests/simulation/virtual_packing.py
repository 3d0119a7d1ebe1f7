"""Repacks that the placement driver orders: in which seeds, by which rules, and what must have come of them in the end.

Servers die, leaders die, streams are trimmed and the store fails in the midst of them, as the seed has it. What is judged of
every repack: its rows are those that the replaced objects had, from its own start on, and what it left out was trimmed
(`check_made`). In the end nothing is left to repack (`left_to_pack`): no neighbours that fit into one object, no object with
too many trimmed rows. The oracle does not ask the queue of the placement driver: it looks at whole streams.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_core.limits import KIB, MIB
from rangelog_core.net.pd_client import PdClient
from rangelog_core.repack_choice import RepackRules
from rangelog_pd.state.versions import LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_server.agent.directives.repack import ObjectPacker
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.repacking import Repacker
from tests.simulation import virtual_reading, virtual_streams
from tests.simulation.virtual_time import Process, here
from tests.simulation.virtual_writing import write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_cluster import VirtualCluster
    from tests.simulation.virtual_life import Life

OFF_EVERY = 4
"""In so many seeds nothing is repacked by the placement driver. Not drawn: that would change all other seeds."""
CORNER_CASES = (
    "a server put one object in the place of many",
    "a server repacked an object again",
    "an object lost its trimmed rows",
    "a server was refused a repack",
    "a stream was trimmed while a server repacked it",
    "a server died in the midst of a repack",
    "a repack went on under another leader",
    "a repack got another key",
)
RARE = CORNER_CASES[4:]
"""Reached in 2,000 seeds, not in a few hundred."""
DOOMED = 0.04
"""How often what a repack stores is stored wrong."""
TRIM_EVERY, TRIMS = 2, 0.3
"""In so many seeds the main stream is trimmed while it is repacked, of so many looks at what is under way; not drawn."""
LOOK_S = 0.03
PIECES_EVERY, PIECES = 4, 25
"""In so many seeds a stream has many small ranges, up to so many. Not drawn, for the same reason."""
TRIMMER = "packing-admin"


def rules_of(seed: int) -> RepackRules:
    """The rules of a seed."""
    chance = Random(f"repacks of the placement driver in seed {seed}")
    if seed % OFF_EVERY == OFF_EVERY - 1:
        return RepackRules(target_bytes=0)
    return RepackRules(
        target_bytes=chance.choice([64 * KIB, 256 * KIB, 10 * MIB]),
        min_age_ms=chance.choice([0, 300, 2_000]),
        trimmed_fraction=chance.choice([0.05, 0.3]),
    )


class _Begun(NamedTuple):
    """The leader's term, and the trim offset, as a key was given out; and the objects to be replaced."""

    term: int
    trim_offset: int
    replaces: tuple[int, ...]


class Packing:
    """Judges the repacks of one run."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._begun: dict[int, _Begun] = {}  # by prepared object
        self._made: dict[int, None] = {}
        self.at_work: dict[Process, pd_pb2.Directive] = {}
        """Processes of servers that have begun a repack and not ended it."""

    def note_dead(self) -> None:
        """Count the servers that died at work."""
        for process in [each for each in self.at_work if not each.alive]:
            del self.at_work[process]
            self._cluster.note("a server died in the midst of a repack")

    def prepared(self, state: Any, command: pd_state_pb2.TimedPrepareRepack) -> None:
        """A key was given out."""
        request = command.request
        for object_id in state.range_objects.prepared:
            row = state.objects[object_id]
            if row.server == request.packer and list(row.replaces) == list(request.object_ids):
                trim_offset = state.streams[row.stream_id].trim_offset
                if object_id not in self._begun and request.spoiled_object_id:
                    self._cluster.note("a repack got another key")
                begun = _Begun(self._cluster.group.term, trim_offset, tuple(row.replaces))
                self._begun.setdefault(object_id, begun)

    def check_made(self, state: Any, made: common_pb2.Object) -> None:
        """An object was put in the place of others: it has their rows."""
        cluster = self._cluster
        begun = self._begun.pop(made.object_id, None)
        if begun is None:
            return  # the command was repeated
        replaced = [state.objects[object_id] for object_id in begun.replaces]
        start = min(each.start_offset for each in replaced)
        if start < made.start_offset > max(start, state.streams[made.stream_id].trim_offset):
            cluster.fail(f"object {made.key} lacks rows of {replaced[0].key} that are not trimmed")
        self._check_rows(made, replaced)
        if not made.incarnation:
            return
        if len(replaced) > 1:
            cluster.note("a server put one object in the place of many")
        if made.start_offset > start:
            cluster.note("an object lost its trimmed rows")
        if any(each.object_id in self._made for each in replaced):
            cluster.note("a server repacked an object again")
        if begun.term != cluster.group.term:
            cluster.note("a repack went on under another leader")
        if begun.trim_offset != state.streams[made.stream_id].trim_offset:
            cluster.note("a stream was trimmed while a server repacked it")
        self._made[made.object_id] = None

    def _check_rows(self, made: common_pb2.Object, replaced: list[common_pb2.Object]) -> None:
        expected = [row for each in replaced for row in self._rows(each) if row[0] >= made.start_offset]
        if self._rows(made) != expected:
            self._cluster.fail(f"object {made.key} has other rows than {[each.key for each in replaced]}")

    def _rows(self, described: common_pb2.Object) -> list[tuple[int, Any, Any]]:
        tier = self._cluster.tier
        trouble = tier.trouble
        tier.begin_trouble(0.0)
        objects = tier.open(self._cluster.tier_url)
        try:
            reader = ObjectReader(objects, described)  # type: ignore[arg-type]
            tables = [reader.rows(each) for each in reader.row_groups(described.start_offset, described.end_offset)]
        except RangelogError as error:
            self._cluster.fail(f"object {described.key}, which counted until now, cannot be read: {error.message}")
        finally:
            tier.begin_trouble(trouble)
        columns = [[table.column(name).to_pylist() for name in ("offset", "key", "value")] for table in tables]
        return [row for offsets, keys, values in columns for row in zip(offsets, keys, values, strict=True)]


def watch_packing(watch: Any, cluster: VirtualCluster) -> None:
    """Count what the servers meet; between their steps time passes, and now and then one dies."""
    chance = Random(f"pauses of repacks in seed {cluster.seed}")

    async def pause() -> None:
        cluster.ambush("packing", here().name)
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.05, 0.8]))

    async def repack(self: ObjectPacker, inner: Any, directive: pd_pb2.Directive) -> None:
        cluster.packing.note_dead()
        cluster.packing.at_work[here()] = directive
        try:
            await inner(self, directive)
        except PreconditionFailed:
            cluster.note("a server was refused a repack")
            raise
        finally:
            cluster.packing.at_work.pop(here(), None)

    async def prepare(self: Repacker, inner: Any, work: Any) -> common_pb2.Object:
        prepared: common_pb2.Object = await inner(self, work)
        if prepared.incarnation:
            if chance.random() < DOOMED:
                cluster.tier.doom(prepared.key)
            await pause()
        return prepared

    async def commit(self: PdClient, inner: Any, request: Any, response: Any, **more: Any) -> Any:
        if isinstance(request, pd_pb2.CommitRepackRequest) and request.packer in cluster.servers:
            await pause()
        return await inner(self, request, response, **more)

    watch(ObjectPacker, "repack_objects", repack)
    watch(Repacker, "_prepare", prepare)
    watch(PdClient, "call", commit)


async def trim_under(clients: Clients, life: Life) -> None:
    """Trim a stream to the midst of an object that is being repacked."""
    cluster, client = clients.cluster, await clients.client()
    chance = Random(f"trims under repacks of seed {cluster.seed}")
    while not clients.stopping:  # one that starts late is not killed when the faults end
        await asyncio.sleep(LOOK_S)
        for directive in [each for each in cluster.packing.at_work.values() if each.stream_id == life.stream_id]:
            found = cluster.state.objects.find(directive.repack_objects.object_ids[0])
            if found is None or chance.random() >= TRIMS:
                continue
            target = chance.randrange(found.start_offset, found.end_offset)
            if life.trimmed < target <= max(life.acked, default=0):
                life.trims.append((target, clients.loop.now))
                with contextlib.suppress(RangelogError):  # it may be trimmed, or not
                    await client.trim_stream(life.name, target)
                    cluster.note("stream trimmed")
            break


async def write_in_pieces(clients: Clients, name: str) -> None:
    """A stream of many small ranges: one writer takes it from the other, each for a few records."""
    chance = Random(f"pieces of seed {clients.cluster.seed}")
    life = await virtual_streams.create(clients, name, always_tiered=True)
    follower = f"f-{life.label}"
    clients.start(follower, virtual_reading.follow(clients, life, follower, "cold_first"))
    if clients.cluster.seed % TRIM_EVERY == 0:
        clients.start(f"{TRIMMER}-{life.label}", trim_under(clients, life))
    for number in range(PIECES):
        if clients.stopping:
            return
        writer = f"v-{life.label}-{number}"
        clients.start(writer, write(clients, life, writer, chance.randrange(2, 12), 0.01), here().name)
        await asyncio.sleep(chance.choice([0.1, 0.2, 0.5]))


def start(clients: Clients) -> None:
    """Start who trims."""
    if clients.cluster.seed % TRIM_EVERY == 0:
        clients.start(TRIMMER, trim_under(clients, clients.main))


def start_pieces(clients: Clients) -> None:
    """Start who writes a stream of many small ranges."""
    clients.start("piecemeal", write_in_pieces(clients, "pieces"))


def left_to_pack(cluster: VirtualCluster) -> str:
    """Return what is left to repack; empty: nothing."""
    cluster.packing.note_dead()
    rules = cluster.group.repack_rules
    state = cluster.state
    if not rules.target_bytes or state.cluster_version < LEVEL_PACKING:
        return ""
    for stream_id, stream in state.streams.items():
        live = [
            one
            for each in state.ranges.of(stream_id).values()
            for one in state.objects_of(stream_id, each.index)
            if one.state == common_pb2.OBJECT_STATE_COMMITTED
        ]
        for each in live:
            if each.end_offset <= cluster.trimmed_before_packing.get(stream_id, 0):
                continue  # it goes with the next trim or upload of its stream
            trimmed = max(0, stream.trim_offset - each.start_offset) / (each.end_offset - each.start_offset)
            if trimmed > rules.trimmed_fraction:
                return (
                    f"{trimmed:.0%} of the rows of {each.key} are below {stream.trim_offset}, where the stream starts"
                )
        if problem := _fits_into_one(live, stream.trim_offset, rules.target_bytes):
            return problem
    return ""


def _fits_into_one(live: list[common_pb2.Object], trim_offset: int, target_bytes: int) -> str:
    """Return neighbours that are small, fit into one object together, and of which none has half of all bytes."""
    run: list[tuple[common_pb2.Object, float]] = []
    for each in [*sorted(live, key=lambda one: one.start_offset), common_pb2.Object()]:
        count = each.end_offset - max(each.start_offset, trim_offset)
        size = each.size_bytes * count / max(1, each.end_offset - each.start_offset)
        if count > 0 and 2 * size <= target_bytes and (not run or run[-1][0].end_offset == each.start_offset):
            run.append((each, size))
            continue
        sizes = [size for _, size in run]
        if len(run) > 1 and sum(sizes) <= target_bytes and 2.01 * max(sizes) < sum(sizes):
            return f"{len(run)} small objects from {run[0][0].key} to {run[-1][0].key} are neighbours"
        run = []
    return ""
