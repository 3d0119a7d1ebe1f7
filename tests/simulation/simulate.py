"""One seed: load and faults, then calm, then everything must heal and everything acked must be there."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from rangelog_core.errors import RangelogError
from rangelog_core.ids import is_internal_name
from rangelog_pd.state.versions import LEVEL_HOSTS, LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2
from tests.simulation import virtual_audit, virtual_disaster, virtual_packing
from tests.simulation.checking import check_copies, check_objects, manifest_problem
from tests.simulation.load import Load
from tests.simulation.probes import probes
from tests.simulation.scenario_behind import Behind
from tests.simulation.scenario_lost_acks import LostAcks
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster, virtual_cluster
from tests.simulation.virtual_faults import Faults
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_time import no_last_words
from tests.simulation.virtual_writing import LAST, write
from tests.support.log_keys import NonceWatch

HEAL_S = 240.0
"""Longer than any lease, backoff, replacement delay and deletion grace of the product together."""


STORY_EVERY = 6
STORIES = (
    LostAcks.STORY,
    "the placement drivers are far away, ranges are small, readers start all the time and writers die",
    "the deposed writer comes back when all servers have restarted",
    "a recoverer's copy arrives when another one has sealed",
    "an append is refused while more are on their way",
    "a writer about to seal reaches one replica, and another writer takes the stream",
    "an older copy of a disk is put in place just when its word decides",
    "an empty disk is put in place just when its word decides",
)
"""Every sixth seed tells one of these instead of drawing its faults."""
MORE_STORIES_EVERY = 24
MORE_STORIES = {9: LostAcks.EARLY, 15: Behind.STORY, 21: "older copies of disks are put back all the while"}
"""Told in so many other seeds: what only few of the drawn ones would reach."""


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    violations: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    acked: int = 0
    unknown: int = 0
    virtual_s: float = 0.0
    steps: int = 0
    trace_hash: str = ""
    trace: list[str] = field(default_factory=list)
    heal_s: float = 0.0
    cpu_s: float = 0.0


def run_seed(seed: int, *, keep_trace: bool = False) -> Outcome:
    """Run one seed from beginning to end."""
    began_s = time.process_time()
    with no_last_words():  # the last of the world goes as its frames do
        outcome = _run_seed(seed, keep_trace)
    outcome.cpu_s = time.process_time() - began_s
    return outcome


def _run_seed(seed: int, keep_trace: bool) -> Outcome:
    outcome = Outcome(seed)
    watch = NonceWatch()
    with watch.watching(), virtual_cluster(seed, keep_trace=keep_trace) as cluster, probes(cluster):
        try:
            cluster.loop.run_until_complete(_run(cluster, outcome))
        except AssertionError as error:
            outcome.violations.append(str(error) or traceback.format_exc())
        except TimeoutError:
            outcome.violations.append(f"no writer gets the stream within {HEAL_S:g} s of calm")
        except RangelogError as error:
            outcome.violations.append(f"a client got stuck: {type(error).__name__}: {error.message}")
        outcome.violations += cluster.loop.problems + watch.problems[:3]
        outcome.counters = dict(cluster.counters + cluster.tier.counts)
        outcome.counters.update(cluster.network.counts)
        outcome.virtual_s, outcome.steps = cluster.loop.now, cluster.loop.steps
        outcome.trace_hash, outcome.trace = cluster.trace_hash, cluster.trace_lines
    return outcome


def _story(seed: int) -> str:
    if seed % STORY_EVERY == 0:
        return STORIES[seed // STORY_EVERY % len(STORIES)]
    return MORE_STORIES.get(seed % MORE_STORIES_EVERY, "")


async def _run(cluster: VirtualCluster, outcome: Outcome) -> None:
    chance, loop = cluster.chance, cluster.loop
    cluster.start()
    clients = Clients(cluster)
    story = _story(cluster.seed)
    load = Load(clients, story=story)
    await load.create_stream()
    faults = Faults(cluster, clients)
    duration_s = chance.uniform(4.0, 15.0)
    if "an empty disk" in story:
        duration_s = max(duration_s, 14.0)  # it takes a lease to tell
    if story:
        faults.tell(story)
    elif load.retention:
        faults.turn_clocks()
    load.start(duration_s)
    faults.start()
    await asyncio.sleep(duration_s)
    faults.stop()
    began = loop.now
    _check_problems(cluster)
    for name in list(clients.processes):
        if name == "admin" or name.startswith(virtual_packing.TRIMMER):
            clients.kill(name)
    await clients.writers_end(HEAL_S)
    await _write_last(clients, clients.main, 20)
    outcome.heal_s = loop.now - began
    await clients.others_end(HEAL_S)
    for life in list(cluster.lives.values()):
        if life is not clients.main and life.stream_id in cluster.state.streams and not is_internal_name(life.name):
            await _write_last(clients, life, 3)
    await _healed(cluster)
    await virtual_audit.check(clients)
    finals = await _read_all(clients)
    await _followers_arrive(clients, finals)
    _check_problems(cluster)
    for label in sorted(finals):
        life, final = finals[label]
        life.check(final, loop.now)
        outcome.acked += len(life.acked)
        outcome.unknown += sum(each.outcome == "unknown" for each in life.appends)
        cluster.trace(f"end {label} {len(final or ())} {len(life.acked)}")
    if virtual_disaster.strikes(clients):
        await virtual_disaster.strike(clients)
        await _healed(cluster)
        _check_problems(cluster)


async def _write_last(clients: Clients, life: Life, count: int) -> None:
    """One more writer, in the calm: it must get the stream."""
    name = f"{LAST}-{life.label}"
    task = clients.start(name, write(clients, life, name, count, 0.01))
    assert task is not None
    async with asyncio.timeout(HEAL_S):
        await task


async def _read_all(clients: Clients) -> dict[str, tuple[Life, list[tuple[int, bytes]] | None]]:
    """What is there at the end, of every stream by its label; None of one that is not there."""
    cluster = clients.cluster
    finals: dict[str, tuple[Life, list[tuple[int, bytes]] | None]] = {}
    for life in list(cluster.lives.values()):
        if is_internal_name(life.name):
            continue  # those of topics are judged with them
        if life.stream_id not in cluster.state.streams:
            if not life.deleted:
                life.gone(clients.loop.now, certain=False)
            finals[life.label] = life, None
            continue
        final = await clients.read_all(life)
        check_copies(cluster, life.stream_id, dict(final), fields=not life.own_fields)
        check_objects(cluster, life.stream_id, dict(final), fields=not life.own_fields)
        finals[life.label] = life, final
    return finals


def _check_problems(cluster: VirtualCluster) -> None:
    assert not cluster.loop.problems, cluster.loop.problems[0]
    assert not cluster.tier.broken, cluster.tier.broken


async def _healed(cluster: VirtualCluster) -> None:
    """Every sealed range is whole on as many replicas as it should have, or in the tier; nothing is left to do."""
    deadline = cluster.loop.now + HEAL_S
    while problem := _not_healed(cluster):
        if cluster.loop.now > deadline:
            cluster.fail(f"not healed after {HEAL_S:g} s of calm: {problem}")
        await asyncio.sleep(1.0)


def _copy(cluster: VirtualCluster, source: common_pb2.Range, member: common_pb2.Replica) -> str:
    """What one member of a sealed range's set has of it: whole, or what is wrong with it."""
    server = cluster.servers[member.server]
    if server.disk.identity is None or server.disk.identity.incarnation != member.incarnation:
        return f"{member.server}: another incarnation"
    replica = server.store.replicas.get((source.stream_id, source.index)) if server.store else None
    if replica is None:
        return f"{member.server}: nothing"
    core = replica.core
    if core.complete:
        return "whole"
    return (
        f"{member.server}: {core.trust.value} up to {core.durable_offset}, end {core.sealed_end_offset} {core.problem}"
    )


def _not_healed(cluster: VirtualCluster) -> str:
    state: Any = cluster.state
    for stream_id, stream in state.streams.items():
        for each in state.ranges.of(stream_id).values():
            sealed = each.state == common_pb2.RANGE_STATE_SEALED
            if problem := _not_whole(cluster, stream.config, each) if sealed else _left_open(cluster, each):
                return problem
    return manifest_problem(cluster) or virtual_packing.left_to_pack(cluster)


def _left_open(cluster: VirtualCluster, each: common_pb2.Range) -> str:
    """An open range with records that is old, or lost a copy, is sealed: by its writer or, if that is gone, without one.

    So is one with a place on a server that is drained, also without records.
    """
    copies = [_copy(cluster, each, member) for member in each.replicas]
    some = any(
        replica is not None and replica.core.durable_offset > each.start_offset
        for server in cluster.servers.values()
        if server.store is not None
        for replica in [server.store.replicas.get((each.stream_id, each.index))]
    )
    if leaving := [member.server for member in each.replicas if member.server in cluster.state.modes.draining]:
        return f"range {each.stream_id}/{each.index} is open, and its place on {leaving[0]} is to go: {copies}"
    wanted = cluster.state.streams[each.stream_id].config.replicas
    there = [name for name in cluster.servers if name not in cluster.state.modes.draining]
    if cluster.state.cluster_version >= LEVEL_HOSTS:  # no two copies are on one host
        there = list(dict.fromkeys(cluster.servers[name].host or name for name in there))
    if len(copies) < min(wanted, len(there)) and cluster.state.cluster_version >= LEVEL_OPERATIONS:
        return f"range {each.stream_id}/{each.index} is open, and there are servers for {wanted} members: {copies}"
    gone = [copy for copy in copies if copy.endswith("another incarnation")]
    is_old = cluster.state.due.open_ages.get((each.stream_id, each.index), math.inf) <= cluster.state.time_ms
    damaged = any(
        store is not None and replica is not None and replica.core.problem
        for member in each.replicas
        for store in [cluster.servers[member.server].store]
        for replica in [store.replicas.get((each.stream_id, each.index)) if store is not None else None]
    )
    waits = some and (gone or is_old or damaged) and cluster.state.cluster_version >= LEVEL_OPERATIONS
    return (
        f"range {each.stream_id}/{each.index} is open, and old, damaged or without a member: {copies}" if waits else ""
    )


def _not_whole(cluster: VirtualCluster, config: common_pb2.StreamConfig, each: common_pb2.Range) -> str:
    where = f"range {each.stream_id}/{each.index}"
    if each.lost:
        return ""
    if config.tiered and each.tiered_end_offset != each.end_offset:
        return f"{where} is tiered up to {each.tiered_end_offset} of {each.end_offset}"
    if each.hot_dropped or each.start_offset == each.end_offset:
        return ""
    copies = [_copy(cluster, each, member) for member in each.replicas]
    whole = copies.count("whole")
    # One that was made while servers were few gets no more members once the object store holds all of it.
    wanted = len(copies) if config.tiered else config.replicas
    return "" if whole >= wanted else f"{where} has {whole} whole replicas of {wanted}: {copies}"


async def _followers_arrive(clients: Clients, finals: dict[str, tuple[Life, list[tuple[int, bytes]] | None]]) -> None:
    """Readers that follow get to the end, and those of a deleted stream hear that it is gone."""
    deadline = clients.loop.now + 120.0
    while late := _late(clients, finals):
        if clients.loop.now > deadline:
            clients.cluster.fail(late)
        await asyncio.sleep(0.5)


def _late(clients: Clients, finals: dict[str, tuple[Life, list[tuple[int, bytes]] | None]]) -> str:
    followers = [name for name in sorted(clients.followers) if clients.lives_on(name)]
    here: set[str] = set()
    for life, final in finals.values():
        if final is None:
            continue
        wanted = final[-1][0] + 1 if final else 0
        for name in followers:
            if name in life.positions:
                here.add(name)
                if life.positions[name] < wanted:
                    return f"{name} stands at {life.positions[name]} of {life.label}; the end is {wanted}"
    lost = [name for name in followers if name not in here]
    return f"{lost[0]} follows a stream that was deleted, and was not told so" if lost else ""
