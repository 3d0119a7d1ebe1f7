"""Reading batches back, every one checked before it is served: checksum, range and offset."""

from __future__ import annotations

from dataclasses import dataclass

from rangelog.batch import batch_crc, check_batch
from rangelog.errors import Corruption, RangelogError
from rangelog_server.ranges.hosted import Hosted
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, split_lsn
from rangelog_server.wal.log import Wal

_SPAN_BYTES_MAX = 1024 * 1024
_GAP_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """One batch to read: where it lies and what it must be."""

    lsn: int
    skip: int
    length: int
    crc: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a thread needs to read batches while the loop goes on changing the replica."""

    stream_id: int
    range_index: int
    wanted: list[Wanted]


def make_plan(hosted: Hosted, first: int, last: int) -> ReadPlan:
    """Note where the batches [first, last) lie. For the event loop's thread."""
    core = hosted.core
    wanted = [
        Wanted(
            hosted.lsns[number],
            hosted.skips[number],
            hosted.lengths[number],
            core.batch_checksum(number),
            core.batch_span(number)[0],
        )
        for number in range(first, last)
    ]
    return ReadPlan(core.stream_id, core.range_index, wanted)


def read_batches(wal: Wal, plan: ReadPlan, *, from_disk: bool = False) -> list[bytes]:
    """Read and check the batches of a plan; `from_disk`: not what is cached. Blocking; any thread. Raises Corruption."""
    batches: list[bytes] = []
    wanted = plan.wanted
    start = 0
    while start < len(wanted):
        stop, begin, end = _span(wanted, start)
        try:
            data = wal.read(begin, end - begin, from_disk=from_disk)
        except (OSError, KeyError) as error:
            raise Corruption(f"the log of range {plan.stream_id}/{plan.range_index} cannot be read") from error
        for one in wanted[start:stop]:
            place = one.lsn + ENTRY_HEADER_BYTES + one.skip - begin
            batches.append(_check(plan, one, bytes(data[place : place + one.length])))
        start = stop
    return batches


def _span(wanted: list[Wanted], start: int) -> tuple[int, int, int]:
    """Return (stop, begin lsn, end lsn) of what one read covers from `start` on."""
    begin = wanted[start].lsn + ENTRY_HEADER_BYTES + wanted[start].skip
    end = begin + wanted[start].length
    stop = start + 1
    while stop < len(wanted):
        place = wanted[stop].lsn + ENTRY_HEADER_BYTES + wanted[stop].skip
        far = split_lsn(place)[0] != split_lsn(begin)[0] or place - end > _GAP_BYTES_MAX
        if far or place + wanted[stop].length - begin > _SPAN_BYTES_MAX:
            break
        end = place + wanted[stop].length
        stop += 1
    return stop, begin, end


def _check(plan: ReadPlan, one: Wanted, data: bytes) -> bytes:
    try:
        header = check_batch(data)
    except RangelogError as error:
        where = f"{plan.stream_id}/{plan.range_index}"
        raise Corruption(f"range {where} at offset {one.base_offset}: {error.message}") from error
    found = (header.stream_id, header.range_index, header.base_offset, batch_crc(data))
    if found != (plan.stream_id, plan.range_index, one.base_offset, one.crc):
        raise Corruption(f"another batch lies where offset {one.base_offset} should")
    return data
