"""The times that a producer notes, sent in the background: at most one note at a time, the last one wins.

What holds: a note that is sent says what it says. All records that were sent before `note` was called have an outcome by then,
and those in the log lie before its position. So what the topic's watermark says of the producer is what the program promised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rangelog._topics.watermark_calls import WatermarkCalls, noted_positions
from rangelog_core.errors import Overloaded, RangelogError, RequestTimeout, ShardNotFound
from rangelog_proto.v1 import watermark_pb2

INTERVAL_S = 1.0
"""Between two notes of a producer that are sent."""
CALL_TIMEOUT_S = 10.0
END_TIMEOUT_S = 2.0

_log = logging.getLogger("rangelog.producer")


class TimeNotes:
    """The notes of one producer. For one event loop."""

    def __init__(
        self,
        calls: WatermarkCalls,
        producer_id: int,
        producer_epoch: int,
        settled: Callable[[], Awaitable[None]],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`settled`: returns once all records that were sent before the call have an outcome; raises when the producer ends."""
        self._calls = calls
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._settled = settled
        self._interval_s = interval_s
        self._ends: dict[int, int] = {}  # behind the last acked record of each shard
        self._noted: dict[int, int] = {}  # what the topic's owner has of these
        self._number = 0
        self._topic_id = 0
        self._time_ms: int | None = None
        self._wanted_ms: int | None = None
        self._work: asyncio.Task[None] | None = None
        self._error: RangelogError | None = None

    def acked(self, shard_id: int, end_offset: int) -> None:
        """Records of a shard are acked below an offset."""
        if end_offset > self._ends.get(shard_id, 0):
            self._ends[shard_id] = end_offset

    def note(self, topic_id: int, time_ms: int) -> None:
        """Note a time; one that is earlier than the last changes nothing. Raises the error that ended the notes."""
        if self._error is not None:
            raise self._error
        self._topic_id = topic_id
        self._time_ms = self._wanted_ms = time_ms if self._time_ms is None else max(time_ms, self._time_ms)
        if self._work is None:
            self._work = asyncio.ensure_future(self._run())

    async def close(self, *, all_settled: bool) -> None:
        """End the notes. `all_settled`: all records have an outcome, so the producer is to hold nothing back from now on."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._work = None
        if self._number and all_settled and self._error is None:
            self._number += 1
            end = watermark_pb2.TimeNoteEnd(
                producer_id=self._producer_id, producer_epoch=self._producer_epoch, number=self._number
            )
            with suppress(RangelogError):  # then it expires
                await self._calls.end(self._topic_id, end, END_TIMEOUT_S)

    # ---- inside

    async def _run(self) -> None:
        """Send what is wanted until nothing is."""
        try:
            while self._wanted_ms is not None:
                time_ms, self._wanted_ms = self._wanted_ms, None
                try:
                    await self._settled()
                except RangelogError:
                    return  # the producer has ended
                try:
                    await self._send(time_ms)
                except RangelogError as error:
                    if not (error.retriable or error.outcome_unknown or isinstance(error, _TRY_AGAIN)):
                        self._error = error
                        return
                    _log.info("a time is not noted yet: %s", error)
                    self._wanted_ms = time_ms if self._wanted_ms is None else self._wanted_ms
                await asyncio.sleep(self._interval_s)
        finally:
            self._work = None

    async def _send(self, time_ms: int) -> None:
        changed = {shard: end for shard, end in self._ends.items() if end > self._noted.get(shard, 0)}
        self._number += 1
        note = watermark_pb2.TimeNote(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            number=self._number,
            time_ms=time_ms,
            positions=noted_positions(changed),
        )
        await self._calls.note(self._topic_id, note, CALL_TIMEOUT_S)
        self._noted.update(changed)


_TRY_AGAIN = (RequestTimeout, Overloaded, ShardNotFound)
