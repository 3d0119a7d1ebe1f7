"""The last act of some seeds: two of three members of an open range lose their disks at once, and its writer is gone.

Nobody can say where its acked records end, so the stream is stuck until an operator accepts the loss. What holds then: the
operator is shown it; what the last member has is kept; every record that was acked and is not kept lies in the span that is
called lost; the stream goes on behind it, so no offset is given to two records; and all that is left becomes whole again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import rangelog
from rangelog_core.errors import PreconditionFailed, RangelogError, RecordsLost
from rangelog_core.net.pd_client import PdClient
from rangelog_pd.state.losses import has_no_end, is_gone
from rangelog_pd.state.versions import LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, repair_pb2
from tests.simulation.virtual_streams import create
from tests.simulation.virtual_writing import LAST, write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_life import Life

EVERY = 6
"""In so many seeds; when all else has been judged."""
SHOWN_WITHIN_S = 120.0
CALL_S = 4.0
CORNER_CASES = (
    "the loss of an open range was accepted",
    "a member had records of an open range whose loss was accepted",
)
RARE = ("acked records were lost with two disks",)


def strikes(clients: Clients) -> bool:
    """Whether this seed has such an end."""
    return clients.cluster.seed % EVERY == 4 and clients.cluster.state.cluster_version >= LEVEL_PACKING


async def strike(clients: Clients) -> None:
    """All of it."""
    cluster = clients.cluster
    chance = Random(f"disaster of seed {cluster.seed}")  # its own: seeds stay what they were
    for name in sorted(clients.followers):
        clients.dismiss(name)  # they have arrived
    life = await create(clients, "doomed")
    first = f"{LAST}-{life.label}-0"
    clients.start(first, write(clients, life, first, chance.randrange(1, 40), 0.02))
    await asyncio.sleep(chance.uniform(0.05, 1.5))
    if clients.lives_on(first):
        clients.kill(first)
    await asyncio.sleep(chance.choice([0.0, 0.0, 2.0]))
    found: Any = cluster.state.ranges.of(life.stream_id).last()
    if found is None or found.state != common_pb2.RANGE_STATE_OPEN or len(found.replicas) < 3:
        return
    members = [member.server for member in found.replicas]
    chance.shuffle(members)
    if chance.random() < 0.7:
        members.sort(key=lambda name: -_end_at(clients, name, found))  # the one that is left has the least
    victims = members[:2]
    for name in victims:
        cluster.servers[name].stop(power=True)
        cluster.servers[name].lose_disk()
    await asyncio.sleep(chance.uniform(0.0, 1.0))
    for name in victims:
        if not cluster.servers[name].up:  # what keeps servers running may have been faster
            cluster.servers[name].start()
    await _until(
        clients, lambda: all(is_gone(cluster.state, each) for each in found.replicas if each.server in victims)
    )
    accepted = await _accept_all(clients, chance)
    await _judge(clients, life, accepted)


def _end_at(clients: Clients, server: str, of: common_pb2.Range) -> int:
    store = clients.cluster.servers[server].store
    replica = store.replicas.get((of.stream_id, of.index)) if store is not None else None
    return replica.core.durable_offset if replica is not None else of.start_offset


async def _until(clients: Clients, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SHOWN_WITHIN_S):
        while not holds():
            await asyncio.sleep(0.1)


async def _accept_all(clients: Clients, chance: Random) -> dict[int, repair_pb2.AcceptLossResponse]:
    """As an operator: whatever is shown as lost is accepted, until nothing is stuck; by stream."""
    cluster, accepted = clients.cluster, {}
    deadline = clients.loop.now + SHOWN_WITHIN_S
    pd = PdClient(cluster.pd_addresses)
    calls = pd
    try:
        while stuck := _stuck(clients):
            if clients.loop.now > deadline:
                cluster.fail(f"nobody can seal {stuck}, and it is not shown as lost within {SHOWN_WITHIN_S:g} s")
            try:
                request = repair_pb2.ListRepairsRequest(state="REPAIR_STATE_LOST", page_size=1_000)
                for each in (await calls.call(request, repair_pb2.ListRepairsResponse, timeout_s=CALL_S)).repairs:
                    accepted[each.range.stream_id] = await _accept(clients, calls, each.range, f"{chance.random()}")
            except RangelogError as error:
                cluster.note(f"accept_loss: {type(error).__name__}")
            await asyncio.sleep(0.3)
    finally:
        await pd.close()
    return accepted


async def _accept(
    clients: Clients, calls: PdClient, of: common_pb2.Range, request_id: str
) -> repair_pb2.AcceptLossResponse:
    request = repair_pb2.AcceptLossRequest(request_id=request_id, stream_id=of.stream_id, range_index=of.index)
    try:
        return await calls.call(request, repair_pb2.AcceptLossResponse, timeout_s=CALL_S)
    except PreconditionFailed as error:
        if "--give-up-quarantined" not in error.message:
            raise
        clients.cluster.note("a quarantined copy of an open range was given up")
        request.request_id, request.give_up_quarantined = f"{request_id} and what is quarantined", True
        return await calls.call(request, repair_pb2.AcceptLossResponse, timeout_s=CALL_S)


def _stuck(clients: Clients) -> list[tuple[int, int]]:
    state: Any = clients.cluster.state
    return [key for key, each in state.ranges.items() if has_no_end(state, each)]


async def _judge(clients: Clients, life: Life, accepted: dict[int, repair_pb2.AcceptLossResponse]) -> None:
    cluster = clients.cluster
    if life.stream_id not in accepted:
        cluster.fail("the range of a gone writer had too few members left, and ended all the same")
    told = accepted[life.stream_id]
    cluster.note(CORNER_CASES[0])
    if told.HasField("kept"):
        cluster.note(CORNER_CASES[1])
    before = dict(life.acked)
    name = f"{LAST}-{life.label}-1"
    task = clients.start(name, write(clients, life, name, 5, 0.01))
    assert task is not None
    async with asyncio.timeout(SHOWN_WITHIN_S):
        await task
    found = await _read_around(clients, life)
    first, goes_on = told.range.start_offset, told.range.end_offset
    lost = [offset for offset in before if first <= offset < goes_on]
    if lost:
        cluster.note(RARE[0])
    for offset, identity in life.acked.items():
        if offset not in lost and found.get(offset) != identity:
            cluster.fail(
                f"offset {offset} was acked as {identity!r}, and is {found.get(offset)!r}; lost: {first}-{goes_on}"
            )
    given = [each.offset for each in life.appends if each.outcome == "ok"]
    if len(given) != len({*given}):
        cluster.fail("an offset was given to two records")
    if any(first <= offset < goes_on for offset in found):
        cluster.fail("a record was read in a span that is lost")


async def _read_around(clients: Clients, life: Life) -> dict[int, bytes]:
    """Read everything, as an application that goes on where it is told to."""
    client = await rangelog.connect(clients.cluster.pd_addresses)
    found: dict[int, bytes] = {}
    start: int | str = "earliest"
    while True:
        try:
            async for record in client.reader(life.name, start=start, timeout_s=60.0):
                found[record.offset] = record.value.partition(b"|")[0]
            break
        except RecordsLost as error:
            start = error.offset
    await client.close()
    return found
