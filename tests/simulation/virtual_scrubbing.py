"""The role of an operator who scrubs the tier again and again, and of strangers who harm it.

Scrubs run beside uploads, repacks, trims and changes of the tier, with any grace. In some seeds objects of one stream, which
keeps its hot copies, are damaged or removed behind the back of the cluster; in all, objects are planted that the state has
forgotten or never knew. What holds: nothing is called missing or damaged that is not; nothing that counts, is being uploaded
or is foreign is removed; and in the calm scrubs end with nothing left to find. That what was harmed is whole again is judged
with all objects (`check_objects`), as is that hot copies stayed.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_core.object_keys import object_key
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2
from rangelog_tier.scrubbing import DAMAGED, FOREIGN, MISSING, ORPHAN, ScrubFinding, TierScrub
from tests.simulation.virtual_streams import create
from tests.simulation.virtual_writing import write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_life import Life
    from tests.simulation.virtual_objects import VirtualObjects

EVERY = 12
"""Of so many seeds, those with these remainders. Not drawn: that would change all other seeds."""
HARMED = (3, 11)
"""Objects are harmed where nothing is repacked: who judges a repack reads the objects before it."""
UNHARMED = (2, 7)
AGE_S = 1.0
CALL_S = 4.0
CALM_S = 100.0
NEVER_GIVEN_OUT = 1 << 40
CORNER_CASES = (
    "a scrub found a damaged object",
    "a scrub found a missing object",
    "a scrub had an object uploaded again",
    "a scrub removed an orphan",
    "a scrub left a foreign object",
    "a scrub saw an object being uploaded",
)


def start(clients: Clients) -> None:
    """Start the role, in its seeds."""
    remainder = clients.cluster.seed % EVERY
    if remainder in (*HARMED, *UNHARMED):
        clients.start("scrubber", _Scrubber(clients, harms=remainder in HARMED).run())


class _Scrubber:
    def __init__(self, clients: Clients, *, harms: bool) -> None:
        self._clients = clients
        self._cluster = clients.cluster
        self._chance = Random(f"scrubber of seed {clients.cluster.seed}")  # its own: seeds stay what they were
        self._harms = harms
        self._harmed: dict[str, bytes] = {}
        """By key, what the object was."""
        self._orphans: dict[str, VirtualObjects] = {}
        self._foreign: dict[str, VirtualObjects] = {}
        """By key, the store that each was planted in."""

    async def run(self) -> None:
        """Harm and scrub under load; scrub in the calm until nothing is found."""
        pd = PdClient(self._cluster.pd_addresses)
        try:
            life = await create(self._clients, "scrubbed", range_age_s=AGE_S, always_tiered=True, keeps_hot=True)
            for number in range(2):
                name = f"v-{life.label}-{number}"
                self._clients.start(name, write(self._clients, life, name, self._chance.randrange(20, 200), 0.03))
            while not self._clients.stopping:
                await asyncio.sleep(self._chance.uniform(0.1, 1.5))
                if self._is_known:
                    self._strike(life)
                    await self._scrub(pd)
            deadline = self._clients.loop.now + CALM_S
            while self._is_known and (left := await self._left(pd)):
                if self._clients.loop.now > deadline:
                    self._cluster.fail(f"scrubs in {CALM_S:g} s of calm leave {left}")
                await asyncio.sleep(1.0)
        finally:
            await pd.close()

    @property
    def _is_known(self) -> bool:
        """Whether all placement drivers know the calls: in some seeds one is of an earlier program, for a time or for good."""
        return self._cluster.state.cluster_version >= LEVEL_OPERATIONS

    # ---- strangers

    def _strike(self, life: Life) -> None:
        state: Any = self._cluster.state
        if self._harms and self._chance.random() < 0.5 and (counting := self._with_hot_copies(life)):
            self._harm(self._chance.choice(counting))
        if self._chance.random() < 0.3:
            object_id = self._chance.randrange(1, max(2, state.next_object_id))
            if object_id < state.next_object_id and state.objects.find(object_id) is None:
                self._plant(life, object_id, self._orphans)
        if self._chance.random() < 0.2:
            self._plant(life, NEVER_GIVEN_OUT + self._chance.randrange(1_000_000), self._foreign)

    def _with_hot_copies(self, life: Life) -> list[common_pb2.Object]:
        state: Any = self._cluster.state
        if life.stream_id not in state.streams:
            return []
        return [
            one
            for each in state.ranges.of(life.stream_id).values()
            if not each.hot_dropped
            for one in state.objects_of(life.stream_id, each.index)
            if one.state == common_pb2.OBJECT_STATE_COMMITTED and one.key not in self._harmed
        ]

    def _harm(self, described: common_pb2.Object) -> None:
        store = self._cluster.tier.store_of(self._cluster.tier_url, described.key)
        whole = store.objects.get(described.key)
        if not whole:
            return
        self._harmed[described.key] = whole
        if self._chance.random() < 0.4:
            store.remove(described.key)
        else:
            place = self._chance.randrange(len(whole))
            store.objects[described.key] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]

    def _plant(self, life: Life, object_id: int, planted: dict[str, VirtualObjects]) -> None:
        start = self._chance.randrange(0, 1_000)
        key = object_key(life.stream_id, 0, start, start + 1, object_id)
        store = self._cluster.tier.store_of(self._cluster.tier_url, key)
        if key not in store.objects:
            store.plant(key, b"planted")
            planted[key] = store

    # ---- the operator

    async def _scrub(self, pd: PdClient) -> int:
        """Scrub all streams once, judge what is found; return how much that was, -1 if it did not come to its end."""
        tier = self._cluster.tier
        grace_ms = 0 if self._clients.stopping else self._chance.choice([0, 0, 300, 5_000])
        misread = tier.counts["object read wrong"]
        count = 0
        try:
            tier_url = self._cluster.tier_url
            store: Any = tier.open(tier_url)
            work = TierScrub(
                pd, store, tier_url=tier_url, timeout_s=CALL_S, grace_ms=grace_ms, verify=True, repair=True
            )
            async for found in work.run():
                count += found.kind != FOREIGN
                self._judge(found, was_misread=tier.counts["object read wrong"] > misread)
        except RangelogError as error:
            self._cluster.note(f"scrub: {type(error).__name__}")
            return -1
        if work.counts.prepared:
            self._cluster.note("a scrub saw an object being uploaded")
        return count

    def _judge(self, found: ScrubFinding, *, was_misread: bool) -> None:
        cluster = self._cluster
        if found.kind in (MISSING, DAMAGED):
            known = found.key in self._harmed or (was_misread and found.kind == DAMAGED)
            if not known:
                cluster.fail(f"a scrub calls {found.key} {found.kind}: {found.detail}")
            cluster.note(f"a scrub found a {found.kind} object")
            if found.done.startswith("is uploaded"):
                cluster.note("a scrub had an object uploaded again")
        elif found.kind == ORPHAN:
            self._orphans.pop(found.key, None)
            cluster.note("a scrub removed an orphan")
        elif found.key in self._foreign:
            cluster.note("a scrub left a foreign object")
        else:
            cluster.fail(f"a scrub calls {found.key} foreign: {found.detail}")

    async def _left(self, pd: PdClient) -> str:
        """Scrub in the calm; return what is not yet as it should be, in words."""
        if (count := await self._scrub(pd)) != 0:
            return f"{count} findings"
        if gone := [key for key, store in self._foreign.items() if key not in store.objects]:
            self._cluster.fail(f"a scrub removed {gone[0]}, which is not this cluster's")
        left = [key for key, store in self._orphans.items() if key in store.objects]
        return f"the orphan {left[0]}" if left else ""
