"""Judges the topic of a run: what its producers noted, what its group's members were handed, and what is in it at the end.

- Lost: a record that was acked and is not where its ack says; or that no member of the group was handed.
- Duplicated: a record that is in the topic more than once; or records that two instances of members, with one id or not, were
  handed under one ownership of a shard.
- Misordered: a record of a producer and key behind a later one; or one that a member was handed out of its shard's order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import rangelog
from tests.chaos.chaos_topic import TopicLoad
from tests.chaos.chaos_topic_notes import TOPIC, RecordName, name_of, read_notes

PREFERENCES = ("hot_first", "cold_first")
READ_WITHIN_S = 120.0
PROBLEMS_MAX = 20


class Found(NamedTuple):
    """A record of the topic, in the order of one read of all of it."""

    shard: int
    offset: int
    name: RecordName | None
    """None: nobody sent it."""


@dataclass
class TopicVerdict:
    """How the topic fared."""

    acked: int = 0
    unknown: int = 0
    final: int = 0
    handed: int = 0
    """Records handed to members, repeats included."""
    shards: int = 0
    stops: int = 0
    """Producers and members that gave up, and were replaced."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    acks_ns: dict[str, list[int]] = field(default_factory=dict)
    """When acks came, by key: those of one key pause while its shard has no owner."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def figures(self) -> dict[str, int]:
        """All counts."""
        kinds = {f"topic_{kind}": self.counts[kind] for kind in ("lost", "duplicated", "misordered")}
        names = ("acked", "unknown", "final", "handed", "shards", "stops")
        return {f"topic_{name}": getattr(self, name) for name in names} | kinds

    def wrong(self, kind: str, what: str) -> None:
        """Note something that must not be."""
        self.counts[kind] += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"topic: {kind}: {what}")


def judge(load: TopicLoad) -> TopicVerdict:
    """Stop the clients, read everything and compare. Raises what reading raises."""
    verdict = TopicVerdict()
    verdict.problems += load.stop()
    passes = {preference: asyncio.run(_read(load, preference)) for preference in PREFERENCES}
    check(
        verdict,
        passes,
        [read_notes(each.history) for each in load.producers],
        [read_notes(each.history) for each in load.members],
    )
    return verdict


async def _read(load: TopicLoad, preference: str) -> list[Found]:
    async def read(client: rangelog.Client) -> list[Found]:
        found: list[Found] = []
        async for chunk in client.topic_reader(TOPIC, read_preference=preference).chunks():
            found += [Found(chunk.shard_id, record.offset, name_of(record.value)) for record in chunk.records]
        return found

    async with asyncio.timeout(READ_WITHIN_S):
        return await load.ask(read, READ_WITHIN_S)


def check(
    verdict: TopicVerdict,
    passes: dict[str, list[Found]],
    producers: Iterable[Iterable[Sequence[object]]],
    members: Iterable[Iterable[Sequence[object]]],
) -> None:
    """Compare what was read, in each way, with what was noted."""
    sent: set[RecordName] = set()
    acked: dict[RecordName, tuple[int, int]] = {}
    for notes in producers:
        for kind, *rest in notes:
            if kind == "sent":
                sent.add(RecordName(*rest))  # type: ignore[arg-type]
            elif kind == "acked":
                producer, key, number, shard, offset, time_ns = rest
                acked[RecordName(str(producer), _int(key), _int(number))] = _int(shard), _int(offset)
                verdict.acks_ns.setdefault(f"key-{key}", []).append(_int(time_ns))
            elif kind == "differs":
                *name, first, second = rest
                verdict.wrong("duplicated", f"{name} was acked at {first}, and under the same name at {second}")
            elif kind == "stopped":
                verdict.stops += 1
    for times in verdict.acks_ns.values():
        times.sort()
    verdict.acked, verdict.unknown = len(acked), len(sent) - len(acked)
    places: dict[RecordName, tuple[int, int]] = {}
    for preference, found in passes.items():
        places = _check_pass(verdict, preference, found, sent)
        for name, place in acked.items():
            if places.get(name) != place:
                verdict.wrong("lost", f"{name} was acked at {place}; read {preference} it is at {places.get(name)}")
    verdict.final = len(places)
    verdict.shards = len({shard for shard, _ in places.values()})
    handed: set[tuple[int, int]] = set()
    owners: dict[tuple[int, int], int] = {}
    for instance, notes in enumerate(members, 1):
        _check_member(verdict, notes, handed, owners, instance)
    for name, place in acked.items():
        if place not in handed:
            verdict.wrong("lost", f"{name} at {place} was handed to no member of the group")


def _check_pass(
    verdict: TopicVerdict, preference: str, found: Iterable[Found], sent: set[RecordName]
) -> dict[RecordName, tuple[int, int]]:
    places: dict[RecordName, tuple[int, int]] = {}
    last: dict[tuple[str, int], int] = {}
    for shard, offset, name in found:
        if name is None or name not in sent:
            verdict.wrong("damaged", f"nobody sent what is at {(shard, offset)}, read {preference}: {name}")
            continue
        if name in places:
            verdict.wrong("duplicated", f"{name} is at {places[name]} and {(shard, offset)}, read {preference}")
            continue
        places[name] = shard, offset
        before = last.get((name.producer, name.key), -1)
        if name.number < before:
            verdict.wrong("misordered", f"{name} at {(shard, offset)} comes after number {before}, read {preference}")
        last[name.producer, name.key] = max(before, name.number)
    return places


def _check_member(
    verdict: TopicVerdict,
    notes: Iterable[Sequence[object]],
    handed: set[tuple[int, int]],
    owners: dict[tuple[int, int], int],
    instance: int,
) -> None:
    due: dict[int, int | None] = {}  # None: the shard was handed out anew, and begins anywhere
    for kind, *rest in notes:
        if kind == "gained":
            due[_int(rest[0])] = None
        elif kind == "got":
            shard, first, end, since = map(_int, rest)
            if owners.setdefault((shard, since), instance) != instance:
                both = f"members {owners[shard, since]} and {instance}"
                verdict.wrong("duplicated", f"{both} were handed records of shard {shard} of generation {since}")
            if shard not in due or due[shard] not in (None, first):
                verdict.wrong(
                    "misordered", f"a member was handed {first} of shard {shard}, and {due.get(shard)} was due"
                )
            due[shard] = end
            handed.update((shard, offset) for offset in range(first, end))
            verdict.handed += end - first
        elif kind == "stopped":
            verdict.stops += 1


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
