"""Finds the proved end of an open range: asks the replicas, then the writer, then the placement driver.

What holds: everything below the returned end is acked, or no seal can end the range below it. With a healthy writer the
placement driver is not asked: the replicas request the confirm offset from the writer. Only if the writer stays silent, the
placement driver decides. Without the placement driver, only the confirm offset counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rangelog._metadata import Metadata, backoff
from rangelog._read.hot import HotRange
from rangelog.protocol.proof import Evidence, Told, weigh
from rangelog_core.errors import OffsetOutOfRange, RangelogError, RangeNotFound, StreamNotFound, Unavailable
from rangelog_proto.v1 import common_pb2

CONFIRM_WAIT_MS = 100
"""The time for a writer to confirm the records that enough replicas hold: some round trips."""
ARBITRATION_TIMEOUT_S = 3.0
_ON_ITS_WAY_S = 0.3
"""The longest time of a reply: a round trip to the other end of a continent."""
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class ProvedEnd:
    """Everything below `offset` is acked, or cannot be cut by a seal. Not `exact`: recent acks may lie beyond it."""

    offset: int
    exact: bool

    def check_reached(self, offset: int, where: str = "", of: str = "") -> None:
        """Check an offset that a program has given.

        Args:
            offset: The offset; the end itself is valid.
            where: The text before it in messages, such as "topic 't', shard 3: ".
            of: The stream or shard in messages, where `where` does not say it.

        Raises:
            OffsetOutOfRange: The offset lies beyond the end, which is the error's `offset`.
            Unavailable: Too few replicas have answered to decide that.

        Example:
            >>> ProvedEnd(10, exact=True).check_reached(10)
        """
        if offset <= self.offset:
            return
        if not self.exact:
            raise Unavailable(
                f"{where}offset {offset}: too few replicas answer to decide whether it was written; try again"
            )
        what = f" of {of}" if of else ""
        raise OffsetOutOfRange(
            f"{where}offset {offset} is beyond the end{what}, which is {self.offset}", offset=self.offset
        )


async def proved_end(hot: HotRange, metadata: Metadata) -> ProvedEnd:
    """Return the end of an open range.

    Raises Unavailable when no replica answers, StreamNotFound, RangeNotFound where the range is no longer open.
    """
    evidence = await _gather(hot)
    if evidence.sealed_end_offset is not None:
        return ProvedEnd(evidence.sealed_end_offset, exact=True)
    if evidence.held_offset <= evidence.confirmed_offset:
        return ProvedEnd(evidence.confirmed_offset, exact=evidence.complete)
    told = await _ask_writer(hot, evidence.held_offset)
    if told is not None and told.sealed_end_offset is not None:
        return ProvedEnd(told.sealed_end_offset, exact=True)
    if told is not None:
        return ProvedEnd(evidence.held_offset, exact=evidence.complete)
    return await _arbitrate(hot.source, evidence, metadata)


async def _gather(hot: HotRange) -> Evidence:
    """Ask all replicas, for some seconds while fewer than A answer: one alone may not know the last acks."""
    source = hot.source
    told: Sequence[Told] = await hot.ask_all()
    for attempt in range(_ATTEMPTS):
        if len(told) >= source.acks or any(each.sealed_end_offset is not None for each in told):
            break
        await backoff(attempt)
        told = await hot.ask_all()
    if not told:
        if hot.final is not None:
            raise hot.final
        where = f"{source.stream_id}/{source.index}"
        raise Unavailable(f"no replica of the open range {where} answers ({hot.problem}); see `pdctl server list`")
    return weigh(
        told,
        replicas=len(source.replicas),
        acks=source.acks,
        start_offset=source.start_offset,
        floor_offset=source.floor_offset,
    )


async def _ask_writer(hot: HotRange, wanted_offset: int) -> Told | None:
    """Return the first answer of a replica that learns from the writer that `wanted_offset` is acked, or learns of a seal."""
    asked = [asyncio.ensure_future(each) for each in hot.wait_confirmed(wanted_offset, CONFIRM_WAIT_MS)]
    try:
        for answer in asyncio.as_completed(asked, timeout=CONFIRM_WAIT_MS / 1000 + _ON_ITS_WAY_S):
            told = await answer
            if told is not None and (told.sealed_end_offset is not None or told.confirm_offset >= wanted_offset):
                return told
    except TimeoutError:
        return None  # replicas that do not answer are not waited for
    finally:
        for each in asked:
            each.cancel()
    return None


async def _arbitrate(source: common_pb2.Range, evidence: Evidence, metadata: Metadata) -> ProvedEnd:
    held = evidence.held_offset
    try:
        found = await metadata.prove_end(source, held, evidence.holders, ARBITRATION_TIMEOUT_S)
    except (StreamNotFound, RangeNotFound):
        raise
    except RangelogError:
        return ProvedEnd(evidence.confirmed_offset, exact=False)
    if found.state == common_pb2.RANGE_STATE_SEALED:
        return ProvedEnd(found.end_offset, exact=True)
    return ProvedEnd(max(found.floor_offset, evidence.confirmed_offset), exact=evidence.complete)
