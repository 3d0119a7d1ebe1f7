"""The audit log in a simulated cluster: placement drivers write it, and an administrator changes things while leaders die.

Judged at the end: the chain of the stream fits the head in the state, no entry waits, and every change that was made has an
entry that began it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from rangelog_core.audit import ChainCheck
from rangelog_core.errors import Corruption, RangelogError
from rangelog_core.ids import AUDIT_STREAM_NAME
from rangelog_core.net.pd_client import PdClient
from rangelog_pd.audit_writer import AuditWriter
from rangelog_pd.state.versions import LEVEL_AUDIT
from rangelog_proto.v1 import audit_pb2, pd_pb2
from tests.simulation.virtual_time import here

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_cluster import VirtualCluster

EVERY, AT = 12, 10
"""In one of so many seeds the log is on. Not drawn: that would change all other seeds."""
CALL_S = 4.0
WRITTEN_S = 60.0
PREFIX = "audited-"
CORNER_CASES = (
    "the audit log was enabled",
    "a leader went on with the audit log of another",
    "a call that was recorded has no outcome",
    "a leader died while it took over the audit log",
    "the audit log had entries that the state did not know to be there",
)

Watch = Callable[[Any, str, Callable[..., Any]], None]


def watch_audit(watch: Watch, cluster: VirtualCluster) -> None:
    """Count what the writers of the log meet."""

    async def open_stream(self: AuditWriter, inner: Any, stream_id: int) -> None:
        await inner(self, stream_id)
        if self._last_sequence:
            cluster.note("a leader went on with the audit log of another")
        if self._last_sequence > self._driver.machine.state.audit.written_sequence:
            cluster.note("the audit log had entries that the state did not know to be there")

    async def append(self: AuditWriter, inner: Any, writer: Any, entries: Sequence[Any]) -> None:
        await inner(self, writer, entries)
        if entries:
            cluster.ambush("recorded", here().name)

    watch(AuditWriter, "_open", open_stream)
    watch(AuditWriter, "_append", append)


def is_on(seed: int) -> bool:
    """Whether this seed has an audit log."""
    return seed % EVERY == AT


def start(clients: Clients) -> None:
    """Start the role, in its seeds."""
    if is_on(clients.cluster.seed):
        clients.start("auditor", _administrate(clients))


async def _administrate(clients: Clients) -> None:
    chance = Random(f"auditor of seed {clients.cluster.seed}")  # its own: seeds stay what they were
    pd = PdClient(clients.cluster.pd_addresses)
    try:
        while not await _enable(clients, pd, chance):
            if clients.stopping:
                return
            await asyncio.sleep(0.3)
        number = 0
        while not clients.stopping:
            number += 1
            name = f"{PREFIX}{number}"
            try:
                request = pd_pb2.CreateStreamRequest(request_id=f"{chance.random()}", name=name)
                await pd.call(request, pd_pb2.CreateStreamResponse, timeout_s=CALL_S)
            except RangelogError:
                continue  # it is judged by what there is at the end
            await asyncio.sleep(chance.uniform(0.05, 0.6))
    finally:
        await pd.close()


async def _enable(clients: Clients, pd: PdClient, chance: Random) -> bool:
    if clients.cluster.state.cluster_version < LEVEL_AUDIT:
        return False
    request = audit_pb2.SetAuditRequest(request_id=f"{chance.random()}", enabled=True)
    try:
        await pd.call(request, audit_pb2.SetAuditResponse, timeout_s=CALL_S)
    except RangelogError:
        return False
    clients.cluster.note("the audit log was enabled")
    return True


async def check(clients: Clients) -> None:
    """Judge the log, once everything is calm."""
    cluster = clients.cluster
    if not cluster.state.audit.stream_id:
        return
    try:
        async with asyncio.timeout(WRITTEN_S):
            while cluster.state.audit.pending:
                await asyncio.sleep(0.5)
    except TimeoutError:
        cluster.fail(f"{len(cluster.state.audit.pending)} entries of the audit log wait after {WRITTEN_S:g} s of calm")
    audit = cluster.state.audit
    internal = (await clients.client()).internal
    end = await internal.end(AUDIT_STREAM_NAME, audit.stream_id)
    chain = ChainCheck()
    begun: dict[int | str, str] = {}
    ended: set[int | str] = set()
    try:
        async for chunk in internal.records(AUDIT_STREAM_NAME, audit.stream_id, 0, end):
            for record in chunk:
                fields = chain.add(bytes(record.value))
                if fields["outcome"] == "begun":
                    begun[fields["sequence"]] = str(fields["resource"]).removeprefix("stream ")
                elif "of" in fields:
                    ended.add(fields["of"])
        chain.end(audit.last_sequence, audit.last_hash)
    except Corruption as error:
        cluster.fail(f"the audit log: {error.message}")
    if begun.keys() - ended:
        cluster.note("a call that was recorded has no outcome")
    made = {each.name for each in cluster.state.streams.values() if each.name.startswith(PREFIX)}
    if unseen := made - set(begun.values()):
        cluster.fail(f"{sorted(unseen)} were made, and the audit log has no entry of it")
