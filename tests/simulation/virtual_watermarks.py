"""The watermarks of a topic whose producers note times, over splits, merges and deaths of brokers.

What is checked is what a reader may believe: a record behind a watermark's cut, of a producer that was live at the watermark,
has an event time of its lower time or later; nothing that nobody had noted is an upper time; times and cuts never go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog.errors import RangelogError
from tests.simulation.virtual_retention import is_before

if TYPE_CHECKING:
    from rangelog import TopicProducer, Watermark
    from rangelog_proto.v1 import topic_pb2
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_sending import Sent

JITTER_MS = 200
NOTES_SHARE = 0.05


@dataclass
class VirtualWatermarks:
    """What the producers of one topic noted, and the watermarks that were seen."""

    clients: Clients
    topic: str
    noted: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """By producer: when a note was acked, in virtual seconds, and its time."""
    ended: dict[str, float] = field(default_factory=dict)
    """By producer: when it asked to hold nothing back from then on, as it closed."""
    asked_ms: int = 0
    """The latest time that a producer has asked to be noted."""
    seen: dict[int, tuple[float, float, Watermark]] = field(default_factory=dict)
    """By number: when it was not there yet, when it was, and the watermark."""
    _looked_s: float = 0.0

    def event_ms(self) -> int:
        """The event time of a record that is sent now."""
        return int(self.clients.loop.now * 1000) + self.clients.chance.randrange(JITTER_MS)

    def note(self, name: str, producer: TopicProducer) -> None:
        """Promise that no record has an earlier time than now, now and then."""
        if self.clients.chance.random() < NOTES_SHARE:
            now_ms = int(self.clients.loop.now * 1000)
            self.asked_ms = max(self.asked_ms, now_ms)
            producer.note_time(now_ms)

    def watch(self, name: str, producer: TopicProducer) -> None:
        """Learn when notes of a producer are acked, and when it ends them."""
        producer._notes._interval_s = 0.2
        calls = producer._notes._calls
        inner, inner_end, noted = calls.note, calls.end, self.noted.setdefault(name, [])

        async def note(topic_id: int, message: object, timeout_s: float) -> None:
            await inner(topic_id, message, timeout_s)  # type: ignore[arg-type]
            noted.append((self.clients.loop.now, message.time_ms))  # type: ignore[attr-defined]

        async def end(topic_id: int, message: object, timeout_s: float) -> None:
            self.ended[name] = self.clients.loop.now
            await inner_end(topic_id, message, timeout_s)  # type: ignore[arg-type]

        calls.note, calls.end = note, end  # type: ignore[method-assign]

    async def look(self) -> None:
        """Look for new watermarks, all the while."""
        client = await self.clients.client()
        while not self.clients.stopping:
            await asyncio.sleep(self.clients.chance.uniform(0.2, 0.6))
            with suppress(RangelogError):
                await self._look_once(client)

    async def _look_once(self, client: object) -> None:
        began_s = self.clients.loop.now
        async for mark in client.topics.watermarks(self.topic):  # type: ignore[attr-defined]
            known = self.seen.setdefault(mark.number, (self._looked_s, self.clients.loop.now, mark))
            if known[2] != mark:
                self.clients.cluster.fail(f"watermark {mark.number} was {known[2]}, and is {mark}")
        self._looked_s = began_s

    # ---- the end

    async def judge(self, shards: Sequence[topic_pb2.Shard], sent: Sequence[Sent]) -> None:
        """Compare with what was sent."""
        fail = self.clients.cluster.fail
        await self._look_once(await self.clients.client())
        rows = {shard.shard_id: shard for shard in shards}
        before: Watermark | None = None
        for number in sorted(self.seen):
            absent_s, seen_s, mark = self.seen[number]
            self.clients.cluster.note("a watermark was seen")
            if not mark.lower_ms <= mark.upper_ms <= self.asked_ms:
                fail(f"{mark}: nobody had noted that, which was {self.asked_ms} at most")
            if before is not None:
                self._check_order(rows, before, mark)
            before = mark
            live = {
                name
                for name, notes in self.noted.items()
                if notes and notes[0][0] < absent_s and self.ended.get(name, seen_s) >= seen_s
            }
            for one in sent:
                if one.acked is None or one.producer not in live or one.event_ms >= mark.lower_ms:
                    continue
                if not is_before(rows, mark.cut.offsets, *one.acked):
                    fail(f"{one.value!r} of {one.event_ms} ms is at {one.acked}, behind {mark}")

    def _check_order(self, rows: Mapping[int, topic_pb2.Shard], before: Watermark, mark: Watermark) -> None:
        fail = self.clients.cluster.fail
        if mark.lower_ms < before.lower_ms or mark.upper_ms < before.upper_ms:
            fail(f"the times of {mark} are before those of {before}")
        for shard_id, offset in before.cut.offsets.items():
            if offset and not is_before(rows, mark.cut.offsets, shard_id, offset - 1):
                fail(f"the cut of {mark} is before that of {before} in shard {shard_id}")
