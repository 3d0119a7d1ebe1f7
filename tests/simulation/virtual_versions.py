"""Brokers of two versions over the same shards and journals: some run the earlier program, until all are upgraded.

The earlier program is one feature level behind. It registers with that level; entries, pieces and rules of the later one are
unknown to it, and in every other of these seeds a part of the coordinators' journals as well. While it counts as alive it must
meet nothing of the later level. A part has no level: a journal that has commands of it goes to a broker that knows the part.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from rangelog_broker.hosting import journals
from rangelog_broker.hosting.host import Host
from rangelog_broker.hosting.journals import KindJournals, OwnedJournals
from rangelog_broker.journal.entry import Entry, Open
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.joint_machine import JointMachine
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owner import Owner
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.watermarks.kind import WATERMARKS
from rangelog_core.errors import NotOwner, PreconditionFailed, UnsupportedVersion
from rangelog_core.net.pd_client import PdClient
from rangelog_core.versions import LEVEL_BROKERS
from rangelog_proto.v1 import broker_pb2
from tests.simulation.virtual_time import WORLD, here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.virtual_broker import VirtualBroker
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_cluster import VirtualCluster

EARLIER = 2
"""Brokers of three that begin with the earlier program."""
LEVEL = LEVEL_BROKERS - 1
KIND_EVERY = 24
"""As in virtual_retention."""
NEXT_S = (0.7, 1.4)
"""From one broker to the next."""
SNAPSHOT_ENTRIES = 40
RARE = (
    "an earlier broker took a journal over from a later one",
    "a shard went from a later broker to an earlier one",
    "the broker version rose while a journal was owned",
)
CORNER_CASES = (
    "a later broker took a journal over from an earlier one",
    "a later broker proposed nothing new while an earlier one was there",
    "an earlier broker was refused once all were upgraded",
)


def has_earlier_brokers(seed: int) -> bool:
    """Whether the topic of a seed begins with brokers of two versions: one of three does."""
    return seed // KIND_EVERY % 3 == 0


def _knows_watermarks(seed: int) -> bool:
    return seed // KIND_EVERY % 2 == 1


class Upgrade:
    """The brokers of one topic, and what they run."""

    def __init__(self, clients: Clients, brokers: Mapping[str, VirtualBroker]) -> None:
        self._clients, self._brokers = clients, brokers
        self._draw = random.Random(f"versions {clients.cluster.seed}")  # of its own: so the draws of all others stay
        earlier = list(brokers.values())[:EARLIER]
        for broker in earlier:
            broker.is_earlier = True
        earlier[-1].is_spared = True

    async def run(self) -> None:
        """Upgrade one after the other, once what the later one owns has moved twice.

        In the end somebody starts the earlier program once more.
        """
        *earlier, later = self._brokers.values()
        for broker in (later, later, *earlier):
            await asyncio.sleep(self._draw.uniform(*NEXT_S))
            await self._replace(broker, is_earlier=False)
        await asyncio.sleep(self._draw.uniform(*NEXT_S))
        broker = self._draw.choice(list(self._brokers.values()))
        await self._replace(broker, is_earlier=True)
        await asyncio.sleep(self._draw.uniform(*NEXT_S))
        await self._replace(broker, is_earlier=False)

    async def _replace(self, broker: VirtualBroker, *, is_earlier: bool) -> None:
        """Start a broker with another program, once it has handed over."""
        if broker.up and not broker.life.paused:
            broker.stop()
            deadline = self._clients.loop.now + NEXT_S[1]
            while broker.up and self._clients.loop.now < deadline:
                await asyncio.sleep(0.05)
        broker.kill(silently=False)
        broker.is_earlier, broker.is_spared = is_earlier, False
        self._clients.loop.call_in(WORLD, 0.0, _start, broker)


def _start(broker: VirtualBroker) -> None:
    if not broker.up:
        broker.start()


def watch_versions(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    """Have earlier brokers be what they are, and count what meets."""
    if has_earlier_brokers(cluster.seed):
        _limit_journals(watch, cluster)
        _limit_registrations(watch, cluster)
        _watch_owners(watch, cluster)
        if not _knows_watermarks(cluster.seed):
            _take_watermarks_away(watch, stack)


def _unknown(cluster: VirtualCluster, what: str) -> UnsupportedVersion:
    """Return the error of an earlier program. It is a violation where that counts as alive: its level is known then."""
    row = cluster.state.owners.brokers.find(here().name)
    if row is not None and not row.lost and row.feature_level < LEVEL_BROKERS:
        cluster.loop.problems.append(f"{here()} is alive with the earlier program, and has met {what}")
    return UnsupportedVersion(f"{what} is not known here: upgrade this broker")


def _limit_journals(watch: Any, cluster: VirtualCluster) -> None:
    def raise_level_of_fold(self: Fold[Any], inner: Any, level: int) -> None:
        if here().is_earlier and level > LEVEL:
            raise _unknown(cluster, f"a journal of level {level}")
        inner(self, level)

    def raise_level(self: Journal[Any], inner: Any, level: int) -> None:
        inner(self, min(level, LEVEL) if here().is_earlier else level)

    def apply(self: Fold[Any], inner: Any, offset: int, entry: Entry) -> Any:
        if here().is_earlier and isinstance(entry, Open) and entry.number:
            raise _unknown(cluster, "a session with a number by lot")
        return inner(self, offset, entry)

    async def restore(self: OwnedShard, inner: Any, *args: Any) -> None:
        snapshot = self._side.snapshot
        if here().is_earlier and snapshot is not None and any(piece[:1] == b"D" for piece in snapshot.pieces):
            raise _unknown(cluster, "a table of which producers are forgotten")
        await inner(self, *args)

    def begin(self: Owner[Any], inner: Any, *args: Any, **more: Any) -> None:
        inner(self, *args, **more)
        if isinstance(self.fold.machine, JointMachine):
            self._limits = replace(self._limits, snapshot_entries=SNAPSHOT_ENTRIES)

    watch(Fold, "_raise_level", raise_level_of_fold)
    watch(Fold, "apply", apply)
    watch(Journal, "raise_level", raise_level)
    watch(OwnedShard, "_restore", restore)
    watch(Owner, "__init__", begin)


def _limit_registrations(watch: Any, cluster: VirtualCluster) -> None:
    async def call(self: PdClient, inner: Any, request: Any, response: Any, **more: Any) -> Any:
        tells_level = isinstance(request, broker_pb2.RegisterBrokerRequest | broker_pb2.BrokerHeartbeatRequest)
        if not tells_level or not here().is_earlier:
            return await inner(self, request, response, **more)
        request.feature_level = LEVEL
        try:
            return await inner(self, request, response, **more)
        except PreconditionFailed:
            if cluster.state.owners.broker_version > LEVEL:
                cluster.note("an earlier broker was refused once all were upgraded")
            raise

    watch(PdClient, "call", call)


def _watch_owners(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note
    former: dict[tuple[int, int], bool] = {}  # whether the last owner that opened it was an earlier one

    def opened(key: tuple[int, int]) -> bool:
        """Note an owner that has opened something; return whether the program of the one before was the later one."""
        is_earlier = here().is_earlier
        was_earlier, former[key] = former.get(key, is_earlier), is_earlier
        return is_earlier and not was_earlier

    async def open_coordinator(self: OwnedJournals, inner: Any, key: tuple[int, int]) -> Any:
        was_earlier = former.get(key, False)
        waiting = await inner(self, key)
        if opened(key):
            note("an earlier broker took a journal over from a later one")
        elif was_earlier and not here().is_earlier:
            note("a later broker took a journal over from an earlier one")
        return waiting

    async def restore(self: OwnedShard, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        if opened(self.key):
            note("a shard went from a later broker to an earlier one")

    def heard_version(self: OwnedJournals, inner: Any, version: int) -> None:
        if self.broker_version < LEVEL_BROKERS <= version and self._coordinators:
            note("the broker version rose while a journal was owned")
        inner(self, version)

    def open_session(self: Owner[Any], inner: Any, now_ms: int, number: int) -> Any:
        proposed = inner(self, now_ms, number)
        if self.fold.level < LEVEL_BROKERS and not here().is_earlier:
            note("a later broker proposed nothing new while an earlier one was there")
        return proposed

    def withdrawn(self: Host, inner: Any, key: tuple[int, int]) -> None:
        if key in self._unopenable:
            note("an earlier broker gave a journal back that it could not open")
        inner(self, key)

    watch(OwnedJournals, "open_coordinator", open_coordinator)
    watch(OwnedJournals, "heard_version", heard_version)
    watch(OwnedShard, "_restore", restore)
    watch(Owner, "open_session", open_session)
    watch(Host, "withdrawn", withdrawn)


def _take_watermarks_away(watch: Any, stack: contextlib.ExitStack) -> None:
    """The earlier program has no such part."""
    make = journals.coordinator_machine

    def coordinator_machine(number: int) -> JointMachine:
        machine = make(number)
        if here().is_earlier:
            del machine.parts[WATERMARKS.number]
        return machine

    def find(self: KindJournals, inner: Any, *key: int) -> Any:
        if self.kind is WATERMARKS and here().is_earlier:
            raise NotOwner("this broker has no watermarks")
        return inner(self, *key)

    async def open_coordinator(self: OwnedJournals, inner: Any, key: tuple[int, int]) -> Any:
        told = self.on_coordinator

        def opened(number: int) -> None:
            with contextlib.suppress(NotOwner):
                told(number)

        if here().is_earlier:
            self.on_coordinator = opened
        try:
            return await inner(self, key)
        finally:
            self.on_coordinator = told

    stack.enter_context(mock.patch.object(journals, "coordinator_machine", coordinator_machine))
    watch(KindJournals, "find", find)
    watch(OwnedJournals, "open_coordinator", open_coordinator)
