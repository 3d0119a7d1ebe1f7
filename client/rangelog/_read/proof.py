"""Finds the end of an open range that a reader may believe: asks the replicas, then the writer, then the placement driver.

What holds: what is returned is acked, or no seal can end the range below it any more. A healthy writer costs the placement
driver nothing: the replicas ask it for its confirm offset. Only where it stays silent is the end arbitrated. With the
placement driver away as well, only what was confirmed is believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rangelog._metadata import Metadata, backoff
from rangelog._read.hot import HotRange
from rangelog.protocol.proof import Evidence, Told, weigh
from rangelog_core.errors import RangelogError, RangeNotFound, StreamNotFound, Unavailable
from rangelog_proto.v1 import common_pb2

CONFIRM_WAIT_MS = 100
"""How long a writer has to say that it was acked what enough replicas hold: some round trips."""
ARBITRATION_TIMEOUT_S = 3.0
_ON_ITS_WAY_S = 0.3
"""An answer takes so long at most: a round trip to the other end of a continent."""
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class ProvedEnd:
    """Everything below `offset` is acked, or as good as. Not `exact`: there may be acks beyond it, given a moment ago."""

    offset: int
    exact: bool


async def proved_end(hot: HotRange, metadata: Metadata) -> ProvedEnd:
    """Return the end of an open range.

    Raises Unavailable when no replica answers, StreamNotFound, RangeNotFound where it is not open any more.
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
    """Ask all replicas; while fewer than A answer, for some seconds: one alone may not have heard of the last acks."""
    source = hot.source
    told: Sequence[Told] = await hot.ask_all()
    for attempt in range(_ATTEMPTS):
        if len(told) >= source.acks or any(each.sealed_end_offset is not None for each in told):
            break
        await backoff(attempt)
        told = await hot.ask_all()
    if not told:
        if hot.unsupported is not None:
            raise hot.unsupported
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
    """Return what the first replica says that hears from the writer that `wanted_offset` is acked, or of a seal."""
    asked = [asyncio.ensure_future(each) for each in hot.wait_confirmed(wanted_offset, CONFIRM_WAIT_MS)]
    try:
        for answer in asyncio.as_completed(asked, timeout=CONFIRM_WAIT_MS / 1000 + _ON_ITS_WAY_S):
            told = await answer
            if told is not None and (told.sealed_end_offset is not None or told.confirm_offset >= wanted_offset):
                return told
    except TimeoutError:
        return None  # a replica that does not answer is not waited for
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
