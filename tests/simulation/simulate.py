"""One seed: load and faults, then calm, then everything must heal and everything acked must be there."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass, field
from typing import Any

from checking import check_copies, check_histories, check_objects
from probes import probes
from virtual_clients import STREAM, Clients
from virtual_cluster import VirtualCluster, virtual_cluster
from virtual_faults import Faults

import rangelog
from rangelog.errors import RangelogError
from rangelog_proto.v1 import common_pb2

HEAL_S = 240.0
"""Longer than any lease, backoff, replacement delay and deletion grace of the product together."""


STORY_EVERY = 6
STORIES = (
    "the deposed writer comes back when all servers have restarted",
    "a recoverer's copy arrives when another one has sealed",
    "an append is refused while more are on their way",
    "a writer about to seal reaches one replica, and another writer takes the stream",
    "an older copy of a disk is put in place just when its word decides",
    "an empty disk is put in place just when its word decides",
)
"""Every sixth seed tells one of these instead of drawing its faults."""


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


def run_seed(seed: int, *, keep_trace: bool = False) -> Outcome:
    """Run one seed from beginning to end."""
    outcome = Outcome(seed)
    with virtual_cluster(seed, keep_trace=keep_trace) as cluster, probes(cluster):
        try:
            cluster.loop.run_until_complete(_run(cluster, outcome))
        except AssertionError as error:
            outcome.violations.append(str(error) or traceback.format_exc())
        except TimeoutError:
            outcome.violations.append(f"no writer gets the stream within {HEAL_S:g} s of calm")
        except RangelogError as error:
            outcome.violations.append(f"a client got stuck: {type(error).__name__}: {error.message}")
        outcome.violations += cluster.loop.problems
        outcome.counters = dict(cluster.counters + cluster.objects.counts)
        outcome.counters.update(cluster.network.counts)
        outcome.virtual_s, outcome.steps = cluster.loop.now, cluster.loop.steps
        outcome.trace_hash, outcome.trace = cluster.trace_hash, cluster.trace_lines
    return outcome


async def _run(cluster: VirtualCluster, outcome: Outcome) -> None:
    chance, loop = cluster.chance, cluster.loop
    cluster.start()
    clients = Clients(cluster)
    await _create_stream(cluster)
    faults = Faults(cluster, clients)
    duration_s = chance.uniform(4.0, 15.0)
    if cluster.seed % STORY_EVERY == 0:
        faults.tell(STORIES[cluster.seed // STORY_EVERY % len(STORIES)])
    for number in range(chance.randrange(1, 4) if cluster.seed % STORY_EVERY else 4):
        count, pause_s = chance.randrange(50, 500), chance.choice([0.002, 0.02, 0.1])
        if cluster.seed % STORY_EVERY == 0:
            count, pause_s = 1_000, 0.02
        begin_s = chance.uniform(0, duration_s) if number else 0.0
        loop.call_later(
            begin_s, lambda n=number, c=count, p=pause_s: clients.start(f"w{n}", clients.write(f"w{n}", c, p))
        )
    for number, preference in enumerate(("hot_first", "cold_first")[: chance.randrange(0, 3)]):
        clients.start(f"r{number}", clients.read(f"r{number}", preference))
    if chance.random() < 0.5:
        clients.start("admin", clients.trim())
    faults.start()
    await asyncio.sleep(duration_s)
    faults.stop()
    began = loop.now
    _check_problems(cluster)
    if "admin" in clients.processes:
        clients.kill("admin")
    await clients.writers_end(HEAL_S)
    last = clients.start("last", clients.write("last", 20, 0.01))
    async with asyncio.timeout(HEAL_S):
        await last
    outcome.heal_s = loop.now - began
    await _healed(cluster)
    final = await clients.read_all()
    _check_problems(cluster)
    check_histories(clients.histories, final)
    check_copies(cluster, dict(final))
    check_objects(cluster, dict(final))
    await _readers_arrive(clients, final)
    outcome.acked = len(clients.histories.acked)
    outcome.unknown = sum(each.outcome == "unknown" for each in clients.histories.appends)
    cluster.trace(f"end {len(final)} {outcome.acked}")


async def _create_stream(cluster: VirtualCluster) -> None:
    client = await rangelog.connect(cluster.pd_addresses)
    hot_s = cluster.chance.choice([None, 0.0, 5.0, float("inf")])
    tiered = cluster.chance.random() < 0.7
    await client.create_stream(
        STREAM,
        range_size_bytes_max=64 * 1024,
        hot_retention_seconds=hot_s if tiered else float("inf"),
        tiered=tiered,
    )
    await client.close()


def _check_problems(cluster: VirtualCluster) -> None:
    assert not cluster.loop.problems, cluster.loop.problems[0]


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
    replica = server.store.replicas.get((1, source.index)) if server.store else None
    if replica is None:
        return f"{member.server}: nothing"
    core = replica.core
    if core.complete:
        return "whole"
    return (
        f"{member.server}: {core.health.value} up to {core.durable_offset}, end {core.sealed_end_offset} {core.problem}"
    )


def _not_healed(cluster: VirtualCluster) -> str:
    state: Any = cluster.state
    config = next(iter(state.streams.values())).config
    for each in state.ranges[1].values():
        if each.state != common_pb2.RANGE_STATE_SEALED:
            continue
        if config.tiered and each.tiered_end_offset != each.end_offset:
            return f"range {each.index} is tiered up to {each.tiered_end_offset} of {each.end_offset}"
        if each.hot_dropped or each.start_offset == each.end_offset:
            continue
        copies = [_copy(cluster, each, member) for member in each.replicas]
        whole = copies.count("whole")
        # One that was made while servers were few gets no more members once the object store holds all of it.
        wanted = len(copies) if config.tiered else config.replicas
        if whole < wanted:
            return f"range {each.index} has {whole} whole replicas of {wanted}: {copies}"
    return ""


async def _readers_arrive(clients: Clients, final: list[tuple[int, bytes]]) -> None:
    """Readers that follow get to the end."""
    deadline = clients.loop.now + 120.0
    wanted = final[-1][0]
    for reader in sorted({name.partition("/")[0] for name in clients.histories.reads}):
        while (at := _last_seen(clients, reader)) < wanted:
            if clients.loop.now > deadline:
                clients.cluster.fail(f"{reader} stands at {at}; the end is {wanted}")
            await asyncio.sleep(0.5)
    check_histories(clients.histories, final)


def _last_seen(clients: Clients, reader: str) -> int:
    """The last offset that a reader saw, in whichever pass; -1: none."""
    passes = [seen for name, seen in clients.histories.reads.items() if name.partition("/")[0] == reader and seen]
    return max((seen[-1][0] for seen in passes), default=-1)
