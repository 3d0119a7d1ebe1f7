"""Judges Spark's copies: each must equal what it is a copy of, record for record, with key, time and headers.

- Lost: a record that is not in the copy, or not as often. Duplicated: one that is there more often. Damaged: one that is there
  and was not to be copied. Misordered: one behind another that it came before; of a topic, behind another of its key.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import rangelog
from rangelog.errors import RangelogError
from tests.chaos.chaos_spark_load import COPY, STREAM, SparkCopies
from tests.chaos.chaos_topic_notes import TOPIC
from tests.support.waiting import WaitRanOut

READ_WITHIN_S = 120.0
PROBLEMS_MAX = 20


class CopiedRecord(NamedTuple):
    """What a copy has of a record. Time: milliseconds."""

    key: bytes | None
    timestamp_ms: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, record: Any) -> Self:
        """That of a record as it was read."""
        return cls(record.key, record.timestamp_ms, record.value, tuple(dict(record.headers).items()))


@dataclass
class CopyVerdict:
    """How the copies fared."""

    begun: bool = False
    """Whether there were any."""
    stream: int = 0
    """Records that were to be copied to the stream."""
    topic: int = 0
    drivers: int = 0
    """How often a driver was started."""
    stops: int = 0
    """Queries that ended by themselves, and were begun anew."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """All counts, if there were copies."""
        if not self.begun:
            return {}
        kinds = {f"spark_{kind}": self.counts[kind] for kind in ("lost", "duplicated", "misordered", "damaged")}
        return {f"spark_{name}": getattr(self, name) for name in ("stream", "topic", "drivers", "stops")} | kinds

    def last_words(self) -> str:
        """For the last line of a run; empty without copies."""
        counts = " ".join(f"{kind}={self.counts[kind]}" for kind in ("lost", "duplicated", "misordered"))
        return f"; spark copied={self.stream + self.topic} {counts}" if self.begun else ""

    def wrong(self, kind: str, what: str) -> None:
        """Note something that must not be."""
        self.counts[kind] += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"spark: {kind}: {what}")


def judge(copies: SparkCopies) -> CopyVerdict:
    """Let the copies be completed, end Spark, read and compare. Nothing is added any more. Raises what reading raises."""
    verdict = CopyVerdict(begun=copies.driver is not None)
    if copies.driver is None:
        return verdict
    try:
        copies.finish()
    except (RangelogError, WaitRanOut) as error:
        verdict.problems.append(f"spark: {error}")
    verdict.drivers = copies.driver.starts
    verdict.stops = len(copies.stops())
    source, copy, topic, topic_copy = asyncio.run(_read(copies))
    verdict.stream, verdict.topic = len(source), len(topic)
    compare(verdict, "the stream", source, copy, by_key=False)
    compare(verdict, "the topic", topic, topic_copy, by_key=True)
    return verdict


async def _read(copies: SparkCopies) -> list[list[CopiedRecord]]:
    async def read(client: rangelog.Client) -> list[list[CopiedRecord]]:
        streams = [client.reader(name) for name in (STREAM, COPY)]
        topics = [client.topic_reader(name) for name in (TOPIC, COPY)]
        return [
            *[[CopiedRecord.of(record) async for chunk in each.chunks() for record in chunk] for each in streams],
            *[
                [CopiedRecord.of(record) async for chunk in each.chunks() for record in chunk.records]
                for each in topics
            ],
        ]

    async with asyncio.timeout(READ_WITHIN_S):
        return await copies.topic.ask(read, READ_WITHIN_S)


def compare(
    verdict: CopyVerdict, of: str, source: Sequence[CopiedRecord], copy: Sequence[CopiedRecord], *, by_key: bool
) -> None:
    """Compare a copy with what it is a copy of: `of`, for people. `by_key`: only records of one key have an order."""
    wanted, found = Counter(source), Counter(copy)
    for record, times in (wanted - found).items():
        verdict.wrong("lost", f"{_shown(record)} of {of} is missing, {times} of {wanted[record]} times")
    for record, times in (found - wanted).items():
        if record in wanted:
            verdict.wrong("duplicated", f"{_shown(record)} of {of} is there {times} times too often")
        else:
            verdict.wrong("damaged", f"{_shown(record)} is in the copy, and was never in {of}")
    places = {record: place for place, record in reversed(list(enumerate(source)))}
    last: dict[bytes | None, int] = {}
    seen: set[CopiedRecord] = set()
    for at, record in enumerate(copy):
        if record not in places or record in seen:
            continue
        seen.add(record)
        group = record.key if by_key else None
        before = last.get(group, -1)
        if places[record] < before:
            verdict.wrong("misordered", f"{_shown(record)} of {of} is record {at} of the copy, behind a later one")
        last[group] = max(before, places[record])


def _shown(record: CopiedRecord) -> str:
    return f"{record.value[:40]!r}, key {record.key!r}, at {record.timestamp_ms} ms"
