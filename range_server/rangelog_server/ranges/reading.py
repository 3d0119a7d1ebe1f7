"""Reading batches back, every one checked before it is served: checksum, range and offset.

What holds: only bytes that were read and do not fit are Corruption. A read that the disk refuses is a ReadFault that names the
batch; a temporary lack of memory, open files or permission is Unavailable; a missing segment is RangeNotFound: its replicas
were dropped, or their batches moved. Batches may be moved during a read, and their old place reused: a failure counts only
while the plan is current (`is_current`), otherwise the read is repeated.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Corruption, RangelogError, RangeNotFound, Unavailable, UnsupportedVersion
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.read_faults import ReadFault
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, TAG_BYTES, Cipher, decrypt_entry, split_lsn
from rangelog_server.wal.log import Wal

_SPAN_BYTES_MAX = 1024 * 1024
_GAP_BYTES_MAX = 16 * 1024
_DISK_ERRNOS = frozenset(
    (errno.EIO, errno.ENOENT, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO, errno.ENXIO, errno.ENODEV)
)
"""The errors of a failing device or a damaged file system, and of a missing file."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One batch to read: its place and its expected content."""

    place: int
    length: int
    crc: int
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The batches that a thread reads while the event loop changes the replica."""

    stream_id: int
    range_index: int
    wanted: list[Wanted]


def make_plan(hosted: HostedReplica, first: int, last: int) -> ReadPlan:
    """Return the plan for the batches [first, last). For the event loop's thread."""
    core = hosted.core
    wanted = [
        Wanted(
            hosted.places[number],
            hosted.lengths[number],
            core.batch_checksum(number),
            *core.batch_span(number),
        )
        for number in range(first, last)
    ]
    return ReadPlan(core.stream_id, core.range_index, wanted)


def count_current(hosted: HostedReplica, plan: ReadPlan) -> int:
    """Return how many batches of a plan, from its first on, the replica still has at the same place."""
    core, places = hosted.core, hosted.places
    number = core.batch_number(plan.wanted[0].base_offset) if plan.wanted else -1
    if hosted.dropped or number < 0:
        return 0
    count = 0
    for one in plan.wanted[: core.batch_count - number]:
        there = places[number], core.batch_span(number)[0], core.batch_checksum(number)
        if there != (one.place, one.base_offset, one.crc):
            break
        count, number = count + 1, number + 1
    return count


def is_current(hosted: HostedReplica, plan: ReadPlan) -> bool:
    """Whether the replica still has all batches of a plan at the same place."""
    return count_current(hosted, plan) == len(plan.wanted)


def read_batches(wal: Wal, plan: ReadPlan, *, from_disk: bool = False) -> list[bytes]:
    """Read and check the batches of a plan; `from_disk`: past the caches. Blocking; for any thread.

    Raises Corruption, ReadFault, Unavailable and RangeNotFound by the rules of the module, and UnsupportedVersion.
    """
    batches: list[bytes] = []
    start = 0
    while start < len(plan.wanted):
        stop = _span_end(plan.wanted, start)
        try:
            batches += _read_span(wal, plan, start, stop, from_disk)
        except ReadFault:
            if stop - start == 1:
                raise
            for number in range(start, stop):  # find the batch that fails
                batches += _read_span(wal, plan, number, number + 1, from_disk)
        start = stop
    return batches


def _span_end(wanted: list[Wanted], start: int) -> int:
    """Return the end of the batches that one read from `start` on covers."""
    begin = wanted[start].place
    end = begin + wanted[start].length
    stop = start + 1
    while stop < len(wanted):
        place = wanted[stop].place
        far = split_lsn(place)[0] != split_lsn(begin)[0] or not 0 <= place - end <= _GAP_BYTES_MAX
        if far or place + wanted[stop].length - begin > _SPAN_BYTES_MAX:
            break
        end = place + wanted[stop].length
        stop += 1
    return stop


def _read_span(wal: Wal, plan: ReadPlan, start: int, stop: int, from_disk: bool) -> list[bytes]:
    first, last = plan.wanted[start], plan.wanted[stop - 1]
    begin, end = first.place, last.place + last.length
    where = f"{plan.stream_id}/{plan.range_index}"
    try:
        cipher = wal.segments[split_lsn(begin)[0]].cipher
        if cipher is not None:  # its entries hold one batch each
            begin, end = begin - ENTRY_HEADER_BYTES, end + TAG_BYTES
        data = wal.read(begin, end - begin, from_disk=from_disk)
    except KeyError as error:
        raise RangeNotFound(f"this server no longer has a replica of range {where}") from error
    except OSError as error:
        problem = f"range {where} cannot be read at offset {first.base_offset}: {error.strerror or error}"
        if error.errno in _DISK_ERRNOS:
            raise ReadFault(problem, first.base_offset, last.end_offset) from error
        raise Unavailable(problem) from error
    batches: list[bytes] = []
    for one in plan.wanted[start:stop]:
        place = one.place - begin
        if cipher is None:
            batches.append(_check(plan, one, bytes(data[place : place + one.length])))
        else:
            batches.append(_check(plan, one, _decrypted(plan, one, cipher, data[place - ENTRY_HEADER_BYTES :])))
    return batches


def _decrypted(plan: ReadPlan, one: Wanted, cipher: Cipher, data: memoryview) -> bytes:
    try:
        return decrypt_entry(cipher, data, one.place - ENTRY_HEADER_BYTES, one.length)
    except Corruption as error:
        where = f"{plan.stream_id}/{plan.range_index}"
        raise Corruption(f"range {where} at offset {one.base_offset}: {error.message}") from error


def _check(plan: ReadPlan, one: Wanted, data: bytes) -> bytes:
    try:
        header = check_batch(data)
    except UnsupportedVersion:
        raise  # the bytes are as they were written
    except RangelogError as error:
        where = f"{plan.stream_id}/{plan.range_index}"
        raise Corruption(f"range {where} at offset {one.base_offset}: {error.message}") from error
    found = (header.stream_id, header.range_index, header.base_offset, batch_crc(data))
    if found != (plan.stream_id, plan.range_index, one.base_offset, one.crc):
        raise Corruption(f"another batch is at the place of offset {one.base_offset}")
    return data
