"""All object stores of the tier, by URL, and the role of an operator that gives the tier another store under load.

What holds: a program opens what the tier's URL names as it knows it, by the production class for several stores; one that has
not heard of a change has the former stores only. Where an object is must follow from its key for everybody who reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from rangelog_core.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_core.tier_stores import TierStore, parse_tier, store_of_key
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import tier_pb2
from rangelog_tier.routed_store import RoutedStore
from tests.simulation.virtual_objects import VirtualObjects

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

TIER_URL = "s3://simulated"
"""The first store: the placement drivers' setting names it."""
EVERY = 5
"""In so many seeds the tier gets other stores. Not drawn: that would change all other seeds."""
CHANGES_MAX = 3
CALL_S = 4.0
CORNER_CASES = (
    "the tier got another store under load",
    "an object was stored in a later store of the tier",
    "an object was read from a former store of the tier",
)


class _Store(VirtualObjects):
    """One of the later stores, or of the former ones: what is done there is counted."""

    is_former = False

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See VirtualObjects."""
        found = super().get_range(key, start, length)
        if self.is_former and key.startswith("streams/"):
            self.counts[CORNER_CASES[2]] += 1
        return found


class VirtualTier:
    """The stores of one run. Trouble is that of a service, so all stores have it at once."""

    def __init__(self, chance: Random, seed: int) -> None:
        self._chance = chance
        self._seed = seed
        self._stores = {TIER_URL: _Store(chance, seed)}

    def open(self, text: str) -> VirtualObjects | RoutedStore:
        """What stands for `open_object_store`."""
        stores = parse_tier(text)
        for each in stores[:-1]:
            self._at(each).is_former = True
        return RoutedStore(stores, self._at) if len(stores) > 1 else self._at(stores[0])

    def store_of(self, text: str, key: str) -> VirtualObjects:
        """The store where the tier's URL says that an object is."""
        return self._at(store_of_key(parse_tier(text), key))

    def stored(self, text: str, key: str) -> bytes:
        """The bytes of an object where the tier's URL says that it is; none if there is no such object."""
        stores = parse_tier(text)
        store = store_of_key(stores, key)
        data = self._at(store).objects.get(key, b"")
        if data and store != stores[0]:
            self._at(store).counts[CORNER_CASES[1]] += 1
        return data

    def manifests(self, text: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Each stream's manifest, of the latest store that has one."""
        found: dict[str, bytes] = {}
        for each in parse_tier(text):
            found.update((key, data) for key, data in self._at(each).objects.items() if key.startswith(prefix))
        yield from found.items()

    @property
    def broken(self) -> str:
        """What is wrong with a manifest that was stored in one of them."""
        return next((each.broken for each in self._stores.values() if each.broken), "")

    @property
    def counts(self) -> Counter[str]:
        """What happened in all of them."""
        return sum((each.counts for each in self._stores.values()), Counter())

    @property
    def trouble(self) -> float:
        """How often something goes wrong now."""
        return self._stores[TIER_URL].trouble

    def doom(self, key: str) -> None:
        """See VirtualObjects: whatever store it is put in."""
        for each in self._stores.values():
            each.doom(key)

    def begin_trouble(self, trouble: float) -> None:
        """A bad time; see VirtualObjects."""
        for each in self._stores.values():
            each.trouble = trouble

    def end_trouble(self) -> None:
        """The bad time is over."""
        for each in self._stores.values():
            each.end_trouble()

    def end_faults(self) -> None:
        """Nothing goes wrong any more."""
        for each in self._stores.values():
            each.end_faults()

    def _at(self, store: TierStore) -> _Store:
        first = self._stores[TIER_URL]
        found = self._stores.get(store.url)
        if found is None:
            found = self._stores[store.url] = _Store(self._chance, self._seed)
            found.trouble, found.spoiling = first.trouble, first.spoiling
        return found


class NoTrials:
    """Stands for the check of a store that the tier is to get: it runs on a thread."""

    async def passed(self, url: str) -> None:
        """Every store works."""


def start(clients: Clients) -> None:
    """Start the role."""
    clients.start("tier-operator", _operate(clients))


async def _operate(clients: Clients) -> None:
    chance = Random(f"tier operator of seed {clients.cluster.seed}")  # its own: seeds stay what they were
    pd = PdClient(clients.cluster.pd_addresses)
    try:
        for number in range(chance.randint(1, CHANGES_MAX)):
            while clients.cluster.state.cluster_version < LEVEL_OPERATIONS and not clients.stopping:
                await asyncio.sleep(0.3)
            await asyncio.sleep(chance.uniform(0.5, 4.0))
            request = tier_pb2.SetTierRequest(request_id=f"{chance.random()}", url=f"{TIER_URL}-{number}")
            while not clients.stopping:
                with contextlib.suppress(RangelogError):
                    await pd.call(request, tier_pb2.SetTierResponse, timeout_s=CALL_S)
                    clients.cluster.note(CORNER_CASES[0])
                    break
                await asyncio.sleep(0.3)
    finally:
        await pd.close()
