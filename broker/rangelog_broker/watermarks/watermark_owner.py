"""The owner's side of the watermarks of one journal: when they are computed, and what is read of the placement driver.

What holds:
- A topic's watermark is computed at most once in an interval, and only if a producer noted a time or ended since, or one is
  silent. A topic without notes costs nothing but a look at its producers' times.
- The shards of a topic are read when a note names one that is not known yet, and before a computation if the last reading is
  older than READ_AGAIN_S. One reading serves all who wait for it.
- A note whose position lies beyond the end of a current shard is refused, before it is proposed: it would put the topic's cut
  behind all records for good. A note that was proposed by an earlier program is applied as it is.
- After a takeover each producer has the whole expiry time to find the new owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owners import moved
from rangelog_broker.shards.shard_facts import read_facts
from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.shard_ends import FindEnd, ShardEnds
from rangelog_broker.watermarks.topic_times import KeptWatermark, TopicTimes
from rangelog_core.errors import RangelogError, StreamNotFound, TopicNotFound, Unavailable, WriterClosed, WriterFenced
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import watermark_pb2 as pb

FACTS_TIMEOUT_S = 4.0
"""Below the limit of one try of a caller."""
READ_AGAIN_S = 60.0
"""Whether records are trimmed, and whether the topic is deleted, is looked up so often at most."""
ENDS_AGAIN_S = 1.0
"""The end of a shard is asked for so often at most, while notes name positions beyond what is known of it."""
_READINGS = 2
"""A reading that has begun before a shard became current, or ended, does not find it so; the next one does."""

_log = logging.getLogger("rangelog.watermarks")


class WatermarkOwner:
    """The watermarks of one journal, as long as this broker owns it. For one event loop."""

    def __init__(
        self,
        journal: Journal[WatermarkCoordinator],
        topics: PdCalls,
        find_end: FindEnd,
        *,
        interval_s: float,
        expiry_s: float,
    ) -> None:
        self.journal = journal
        self._topics = topics
        self._ends = ShardEnds(find_end, min(ENDS_AGAIN_S, interval_s))
        self._interval_s = interval_s
        self._expiry_ms = int(expiry_s * 1000)
        self._opened_ms = journal.now_ms
        self._loop = asyncio.get_running_loop()
        self._readings: dict[int, asyncio.Future[None]] = {}
        self._read_at: dict[int, float] = {}
        machine = journal.machine
        self._noted = {topic_id: None for topic_id, topic in machine.topics.items() if topic.noted}
        machine.on_noted = self._note_change
        self._work = self._loop.create_task(self._run())

    def close(self) -> None:
        """End what runs. Idempotent."""
        self._work.cancel()
        self._ends.close()
        for reading in self._readings.values():
            reading.cancel()

    async def note(self, topic_id: int, note: pb.TimeNote) -> None:
        """Take a producer's promise. Raises TopicNotFound, Unavailable, NotOwner, OutcomeUnknown, and as TopicTimes.note."""
        for _ in range(_READINGS):
            topic = self.journal.machine.topic(topic_id)
            if topic is not None and topic.knows(note.positions) and await self._is_reached(topic_id, topic, note):
                break
            await self._read(topic_id)
        await self._own(pb.WatermarkCommand(topic_id=topic_id, note=note))

    async def end(self, topic_id: int, end: pb.TimeNoteEnd) -> None:
        """A producer is closed. Raises NotOwner, OutcomeUnknown."""
        if self.journal.machine.topic(topic_id) is not None:
            await self._own(pb.WatermarkCommand(topic_id=topic_id, end=end))

    async def watermarks(self, topic_id: int, after: int, from_ms: int | None) -> Sequence[KeptWatermark]:
        """Return the watermarks of a topic with numbers above `after`.

        With `from_ms`: from the last one on whose lower time is `from_ms` or earlier. Raises NotOwner.
        """

        def look(machine: WatermarkCoordinator) -> Sequence[KeptWatermark]:
            topic = machine.topic(topic_id)
            return _selected(topic.watermarks, after, from_ms) if topic is not None else ()

        try:
            return await self.journal.read(look)
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error

    async def compute_due(self) -> None:
        """Compute the watermarks of the topics whose producers noted times, or are silent. Raises NotOwner, OutcomeUnknown."""
        noted, self._noted = self._noted, {}
        now_ms = self.journal.now_ms
        for topic_id, topic in list(self.journal.machine.topics.items()):
            if topic_id not in noted and not topic.has_silent(self._expiry_ms, self._opened_ms, now_ms):
                continue
            if self._loop.time() - self._read_at.get(topic_id, float("-inf")) >= READ_AGAIN_S:
                try:
                    await self._read(topic_id)
                except TopicNotFound:
                    continue
                except RangelogError as error:
                    _log.info("the shards of topic %d are not read again: %s", topic_id, error)
            compute = pb.WatermarkCompute(expiry_ms=self._expiry_ms, opened_ms=self._opened_ms)
            try:
                await self._own(pb.WatermarkCommand(topic_id=topic_id, compute=compute))
            except TopicNotFound:
                pass  # deleted meanwhile
            except RangelogError:
                self._noted = {**noted, **self._noted}
                raise

    # ---- inside

    async def _is_reached(self, topic_id: int, topic: TopicTimes, note: pb.TimeNote) -> bool:
        """Check the positions in current shards; False: one of these is gone by now. Raises OffsetOutOfRange, Unavailable."""
        current = [each for each in note.positions if not topic.shards[each.shard_id].ended]
        try:
            async with asyncio.timeout(FACTS_TIMEOUT_S):
                await self._ends.check(topic_id, current)
        except StreamNotFound:
            return False
        except TimeoutError:
            raise Unavailable("the ends of shards that a note of a time names are not known yet: try again") from None
        return True

    def _note_change(self, topic_id: int) -> None:
        self._noted[topic_id] = None

    async def _run(self) -> None:
        while self.journal.closed is None:
            await asyncio.sleep(self._interval_s)
            try:
                await self.compute_due()
            except RangelogError as error:
                _log.info("watermarks are not computed yet: %s", error)

    async def _own(self, command: pb.WatermarkCommand) -> None:
        try:
            await self.journal.propose_own(command.SerializeToString())
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error

    async def _read(self, topic_id: int) -> None:
        """Read the shards of a topic from the placement driver, once for all who wait. Raises TopicNotFound, Unavailable."""
        reading = self._readings.get(topic_id)
        if reading is None:
            reading = self._readings[topic_id] = asyncio.ensure_future(self._learn(topic_id))
            reading.add_done_callback(lambda ended: self._was_read(topic_id, ended))
        await asyncio.shield(reading)

    def _was_read(self, topic_id: int, reading: asyncio.Future[None]) -> None:
        del self._readings[topic_id]
        if not reading.cancelled():
            reading.exception()  # raised where it is awaited, if anybody still waits

    async def _learn(self, topic_id: int) -> None:
        try:
            facts = await read_facts(self._topics, topic_id, timeout_s=FACTS_TIMEOUT_S)
        except TopicNotFound:
            self._read_at.pop(topic_id, None)
            self._ends.keep(topic_id, ())
            if self.journal.machine.topic(topic_id) is not None:
                await self._own(pb.WatermarkCommand(topic_id=topic_id, forget=pb.WatermarkForget()))
            raise
        self._read_at[topic_id] = self._loop.time()
        topic = self.journal.machine.topic(topic_id)
        if topic is None or topic.map_version < facts.map_version:
            shards = pb.WatermarkShards(map_version=facts.map_version)
            shards.shards.extend(sorted(facts.shards, key=lambda each: each.shard_id))
            await self._own(pb.WatermarkCommand(topic_id=topic_id, shards=shards))
        self._ends.keep(topic_id, (each.shard_id for each in facts.shards if not each.ended))


def _selected(kept: Iterable[KeptWatermark], after: int, from_ms: int | None) -> list[KeptWatermark]:
    found: list[KeptWatermark] = []
    for each in kept:
        if each.number > after:
            if from_ms is not None and each.lower_ms <= from_ms:
                found.clear()
            found.append(each)
    return found
