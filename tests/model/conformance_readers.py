"""Readers of a walk through the seal model, as the product has them: what is served, told, proved, arbitrated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rangelog.protocol.proof import Evidence, Told, weigh
from rangelog_core.errors import Corruption
from rangelog_core.ids import ReplicaId
from tests.model.conformance_driver import Driver
from tests.model.conformance_servers import Server
from tests.model.seal_state import AT_ONCE, Seal


class ReaderSide:
    """Any number of readers: what they heard last from each replica."""

    def __init__(self, instance: Seal, replicas: Sequence[ReplicaId], driver: Driver) -> None:
        self._instance = instance
        self._replicas = replicas
        self._driver = driver
        self._heard: dict[ReplicaId, Told] = {}

    def served(self, server: Server, confirm_offset: int, offset: int) -> None:
        """A replica serves up to `offset` once it was told that all below `confirm_offset` is acked, or less after a fence."""
        readable = server.confirm(confirm_offset)
        core = server.core
        assert core is not None
        if core.sealed_end_offset is not None:
            assert readable <= core.sealed_end_offset
        elif core.fenced:
            assert readable <= offset
        else:
            assert readable == offset

    def told(self, server: Server, number: int, held_offset: int) -> None:
        """A replica tells what it holds."""
        told = self._heard[self._replicas[number]] = server.told(self._replicas[number])
        assert told.durable_offset == held_offset

    def proves(self, servers: Sequence[Server | None], offset: int, answer: int, acked_offset: int) -> None:
        """The answers prove `offset`; the placement driver makes it `answer`. All below `acked_offset` is acked by now."""
        rounds = self._rounds_now(servers) if self._instance.reader == AT_ONCE else [list(self._heard.values())]
        told = next((each for each in rounds if self._held(each) == offset), None)
        assert told is not None, "the product proves another end"
        evidence = self._weighed(told)
        assert evidence.held_offset == max(offset, evidence.confirmed_offset)
        assert evidence.confirmed_offset <= max(acked_offset, self._driver.end_offset or 0)
        holders = [each.replica for each in told if each.durable_offset >= offset]
        assert self._driver.prove_end(offset, holders) == answer

    def _rounds_now(self, servers: Sequence[Server | None]) -> Iterator[list[Told]]:
        """The answers of this moment, without those who hold most: any of them may be late."""
        told = []
        for replica, server in zip(self._replicas, servers, strict=True):
            try:
                told += [server.told(replica)] if server is not None else []
            except Corruption:
                continue
        told.sort(key=lambda each: -each.durable_offset)
        yield from (told[number:] for number in range(len(told)))

    def _weighed(self, told: Sequence[Told]) -> Evidence:
        size, acks = self._instance.replicas, self._instance.acks
        return weigh(told, replicas=size, acks=acks, start_offset=0, floor_offset=0)

    def _held(self, told: Sequence[Told]) -> int:
        """What they hold, whatever they have heard of the writer."""
        return self._weighed([replace(each, confirm_offset=0) for each in told]).held_offset if told else -1
