"""The role of a program that repacks: it joins the objects of all streams while others upload, trim, delete and read them.

Sometimes two of them do so at once, and sometimes one dies between two steps. That no object counts whose records another one
has, and that none is lost, is judged at every command (`State.validate`) and of the bytes in the end (`check_objects`).
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_pd.state.versions import LEVEL_REPACKS
from rangelog_proto.v1 import common_pb2
from rangelog_tier.repacking import Repack, Repacker, plan_repacks
from tests.simulation.virtual_time import here

if TYPE_CHECKING:
    from rangelog import Client
    from tests.simulation.virtual_clients import Clients

CORNER_CASES = (
    "objects were repacked",
    "a repacked object was repacked",
    "a repack was refused",
    "a packer died in the midst of a repack",
)
RARE = (CORNER_CASES[1], CORNER_CASES[3])
"""Reached in 2,000 seeds, not in a few hundred."""
DIES = 0.15
"""How often a packer dies between two steps of a repack."""
STREAMS_MAX = 12
"""In a round: some seeds have a fleet of streams."""
LAST_ROUNDS = 3
"""In the calm."""


class _DyingRepacker(Repacker):
    """Dies between two steps."""

    packer: Packer

    async def _prepare(self, work: Repack) -> common_pb2.Object:
        prepared = await super()._prepare(work)
        await self.packer.may_die()
        return prepared


class Packer:
    """One role; those that follow it when it dies have its chance."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._chance = Random(f"{name} of seed {clients.cluster.seed}")  # its own: seeds stay what they were
        self._generation = 0

    def start(self) -> None:
        """Start the role in a process of its own."""
        self._generation += 1
        self._clients.start(f"{self._name}-{self._generation}", self._run())

    async def may_die(self) -> None:
        """Between two steps; another one follows."""
        if self._chance.random() < DIES and not self._clients.stopping:
            self._clients.cluster.note("a packer died in the midst of a repack")
            self._clients.loop.call_later(self._chance.uniform(0.1, 2.0), self._follow)
            self._clients.kill(here().name)
            await asyncio.sleep(0)
        await asyncio.sleep(self._chance.choice([0.0, 0.0, 0.05, 0.5]))

    def _follow(self) -> None:
        if not self._clients.stopping:
            self.start()

    async def _run(self) -> None:
        client = await self._clients.client()
        rounds = 0
        while rounds < LAST_ROUNDS:
            rounds += self._clients.stopping
            await asyncio.sleep(self._chance.choice([0.1, 0.3]))
            if self._clients.cluster.state.cluster_version < LEVEL_REPACKS:
                continue  # of an earlier program's: in some seeds for good
            lives = list(self._clients.cluster.lives.values())
            for life in self._chance.sample(lives, min(len(lives), STREAMS_MAX)):
                try:
                    await self._repack_stream(client, life.name)
                except RangelogError as error:
                    if isinstance(error, PreconditionFailed):
                        self._clients.cluster.note("a repack was refused")

    async def _repack_stream(self, client: Client, name: str) -> None:
        metadata = client._metadata
        stream, ranges = await metadata.ranges(name, 0)
        objects = await metadata.all_objects(stream.stream_id, 0)
        target_bytes = self._chance.choice([20_000, 200_000, 10_000_000])
        for work in plan_repacks(stream, ranges, objects, target_bytes):
            with tempfile.TemporaryDirectory() as directory:
                tier_url = await metadata.tier_url()
                store = self._clients.cluster.tier.open(tier_url)
                packer = _DyingRepacker(metadata.pd, store, Path(directory), tier_url=tier_url)  # type: ignore[arg-type]
                packer.packer = self
                await packer.repack(work)
            self._clients.cluster.note("objects were repacked")
            if any(_is_joined(each, ranges) for each in work.objects):
                self._clients.cluster.note("a repacked object was repacked")


def _is_joined(described: common_pb2.Object, ranges: list[common_pb2.Range]) -> bool:
    """Whether an object has the records of several ranges."""
    return any(
        each.index != described.range_index and described.start_offset <= each.start_offset < described.end_offset
        for each in ranges
    )


def start(clients: Clients) -> None:
    """Start one packer, or two."""
    for number in range(1 + (clients.cluster.seed // 8) % 2):
        Packer(clients, f"packer{number}").start()
