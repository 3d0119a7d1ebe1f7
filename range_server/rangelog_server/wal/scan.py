"""The content of a segment after a crash: entries, damage, and how it ends. Pure: bytes in, findings out.

A large write writes the header of its first entry last (committer.py), so where END remains the write was not finished and
none of its entries was acked. The search continues behind a damaged place: a later entry of this log, found by its magic and
its own position, shows that the place is not the end of the log. Damage in the last write is *tail* damage (a torn write or
rot, which cannot be distinguished; the tail is cut and untrusted); damage before it is in flushed bytes (*middle*).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from rangelog_core.errors import Corruption
from rangelog_server.wal.entry import (
    ENCRYPTED_VERSION,
    ENTRY_HEADER_BYTES,
    ENTRY_MAGIC,
    SEGMENT_HEADER_BYTES,
    Cipher,
    Entry,
    EntryHeader,
    Kind,
    encrypted_digest,
    make_lsn,
    parse_header,
    payload_digest,
    split_lsn,
)


class Ending(Enum):
    """How a segment ends."""

    END = "end"  # the log ended here
    NEXT = "next"  # the log continues in the next segment
    TORN = "torn"  # neither: the bytes behind the last entry are not readable


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that should be an entry and are not. `range_id` None: its header is not readable."""

    lsn: int
    range_id: tuple[int, int] | None

    @property
    def where(self) -> str:
        """The place of the damage, for messages."""
        sequence, position = split_lsn(self.lsn)
        return f"segment {sequence:016x} at {position}"


@dataclass(slots=True)
class SegmentLog:
    """One segment's content. `end`: the position of the end marker, present or not."""

    sequence: int
    entries: Sequence[Entry]
    end: int
    ending: Ending
    damages: list[Damage] = field(default_factory=list)
    last_group_start: int = SEGMENT_HEADER_BYTES
    leftovers: list[int] = field(default_factory=list)  # headers of an unfinished write, behind the end
    scanned: bool = True  # False: taken from its sidecar

    @property
    def used(self) -> bool:
        """Whether any entry was written after the preparation."""
        return bool(self.entries or self.damages) or self.ending is not Ending.END

    @property
    def reported_end(self) -> int:
        """The LSN of the end, as it is reported to placement drivers: of an empty segment that of one in clear, encrypted or
        not."""
        return make_lsn(self.sequence, self.end if self.entries else SEGMENT_HEADER_BYTES)

    @property
    def torn_in_last_write(self) -> bool:
        """Whether damage begins in the last write."""
        return any(split_lsn(damage.lsn)[1] >= self.last_group_start for damage in self.damages)

    @property
    def of_a_start(self) -> bool:
        """Whether the segment holds only entries that a start writes after a torn tail."""
        return all(entry.kind in (Kind.STATE, Kind.SERVER) for entry in self.entries)


@dataclass(slots=True)
class Findings:
    """The whole log's content, oldest first."""

    segments: list[SegmentLog]
    middle: list[Damage]  # in flushed bytes
    tails: list[Damage]  # in the last write: all from there on was cut; also of starts that were interrupted
    tail_index: int  # the last segment in use, -1: none


def _resync(data: bytes, position: int, salt: int, sequence: int) -> int:
    """Return the position of the next valid entry, or -1."""
    while True:
        position = data.find(ENTRY_MAGIC, position)
        if position < 0 or parse_header(data, position, salt, sequence) is not None:
            return position
        position += 1


def _read_entry(data: bytes, header: EntryHeader, cipher: Cipher | None) -> Entry | None:
    start = split_lsn(header.lsn)[1] + ENTRY_HEADER_BYTES
    payload = data[start : start + header.length]
    try:
        if cipher is None and header.version != ENCRYPTED_VERSION:
            digest = payload_digest(header, payload)
        else:
            digest = encrypted_digest(header, payload, cipher, data[start - ENTRY_HEADER_BYTES : start])
    except Corruption:
        return None
    place = (header.stream_id, header.range_index, header.confirm_offset)
    return Entry(header.kind, header.lsn, *place, header.length, digest)


def scan_segment(
    data: bytes, sequence: int, salt: int, start: int = SEGMENT_HEADER_BYTES, cipher: Cipher | None = None
) -> SegmentLog:
    """Read one segment from its first entry on, at `start`. `cipher`: of an encrypted segment.

    Raises UnsupportedVersion when a newer program wrote some of it.
    """
    entries: list[Entry] = []
    log = SegmentLog(sequence, entries, start, Ending.TORN, last_group_start=start)
    position = start
    while True:
        header = parse_header(data, position, salt, sequence)
        if header is None:
            log.damages.append(Damage(make_lsn(sequence, position), None))
            found = _resync(data, position + 1, salt, sequence)
            if found < 0:
                log.end = position
                return log
            position = found
            continue
        log.last_group_start = position - header.group_back
        if header.kind in (Kind.END, Kind.NEXT) and (cipher is None or not header.length):
            log.end = position
            log.ending = Ending.NEXT if header.kind is Kind.NEXT else Ending.END
            if header.kind is Kind.END:
                _look_beyond(data, position, salt, log)
            return log
        entry = _read_entry(data, header, cipher)
        if entry is None:
            log.damages.append(Damage(header.lsn, (header.stream_id, header.range_index)))
        else:
            entries.append(entry)
        position += ENTRY_HEADER_BYTES + header.length


def _look_beyond(data: bytes, end: int, salt: int, log: SegmentLog) -> None:
    """Find entries of this log behind its END.

    Entries of the single write that starts there: its first header is written last, so the write was neither flushed as a
    whole nor acked. Any other entry: flushed bytes are missing.
    """
    found = _resync(data, end + 1, salt, log.sequence)
    while found >= 0:
        header = parse_header(data, found, salt, log.sequence)
        if header is None or found - header.group_back != end:
            log.ending = Ending.TORN
            log.damages.append(Damage(make_lsn(log.sequence, end), None))
            log.last_group_start = end
            return
        log.leftovers.append(found)
        found = _resync(data, found + 1, salt, log.sequence)


def judge(segments: list[SegmentLog]) -> Findings:
    """Distinguish middle from tail damage and cut the tail. `segments`: oldest first.

    A start that finds a torn tail continues in a new segment, and closes the tail once its own entries there are durable.
    If it is interrupted, that tail is still torn, and its own may be: neither is damage to flushed bytes.
    """
    used = [index for index, log in enumerate(segments) if log.used]
    if not used:
        return Findings(segments, [], [], -1)
    tail_index = first = used[-1]
    while first > 0 and segments[first].of_a_start and segments[first - 1].torn_in_last_write:
        first -= 1
    middle: list[Damage] = []
    for log in segments[:first]:
        middle += log.damages
        if log.ending is not Ending.NEXT and not log.damages:
            middle.append(Damage(make_lsn(log.sequence, log.end), None))
    tails: list[Damage] = []
    for log in segments[first : tail_index + 1]:
        _cut_tail(log, middle, tails)
    return Findings(segments, middle, tails, tail_index)


def _cut_tail(log: SegmentLog, middle: list[Damage], tails: list[Damage]) -> None:
    tail: Damage | None = None
    for damage in log.damages:
        if split_lsn(damage.lsn)[1] < log.last_group_start:
            middle.append(damage)
        elif tail is None:
            tail = damage
    if tail is not None:
        cut = tail.lsn
        log.entries = [entry for entry in log.entries if entry.lsn < cut]
        log.end = split_lsn(cut)[1]
        log.ending = Ending.TORN
        tails.append(tail)
