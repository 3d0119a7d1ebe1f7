"""Rebuilds replicas from a log's entries, and applies the consequences of damage. Pure: findings in, replicas out.

* Batches and metadata are matched by sequence number, not by order: metadata is written again when its segment is
  recycled, so it may follow the batches that it describes.
* Batches that were moved follow later ones, and may be in the log twice: the latest copy counts. Copies that differ are
  damage, and so are two batches of one offset of which none is a copy.
* Damage to a named range quarantines it, and so does a gap in its offsets or the loss of its metadata.
* Damage of an unknown range makes the tail of every replica untrusted that is not sealed and whole, and may have destroyed
  whole replicas: then ranges that this server does not know are untrusted as well (`doubt_unknown`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rangelog_core.batch import BatchHeader
from rangelog_core.errors import Corruption, OutOfOrder, RangelogError, UnsupportedVersion
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.replica import Replica
from rangelog_server.ranges.state import (
    ReplicaState,
    ServerState,
    restore,
    unpack_epoch,
    unpack_state,
    unpack_tombstone,
)
from rangelog_server.wal.entry import BATCH_KINDS, Entry, Kind, iterate_heads, make_lsn, split_lsn
from rangelog_server.wal.scan import Damage, Ending, Findings

Key = tuple[int, int]


@dataclass(slots=True)
class DropFloor:
    """No append creates ranges of a stream up to `index` again, since some of them were dropped here.

    `lsn`: of an entry that holds index and epoch, both of them; 0 where none does alone.
    """

    index: int
    epoch: int
    lsn: int

    def raise_to(self, index: int, epoch: int, lsn: int) -> bool:
        """Take over what the entry at `lsn` holds; return whether `lsn` of the floor changed. Drops come in any order."""
        if index <= self.index and epoch <= self.epoch and (index, epoch) != (self.index, self.epoch):
            return False
        covers = index >= self.index and epoch >= self.epoch
        self.index, self.epoch = max(self.index, index), max(self.epoch, epoch)
        self.lsn = lsn if covers else 0
        return True


@dataclass(slots=True)
class Tombstone:
    """A dropped replica whose entries are still in `segments`."""

    as_of_lsn: int
    epoch: int
    lsn: int
    segments: set[int]


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    replicas: dict[Key, HostedReplica] = field(default_factory=dict)
    floors: dict[int, DropFloor] = field(default_factory=dict)
    tombstones: dict[Key, Tombstone] = field(default_factory=dict)
    server: ServerState = field(default_factory=ServerState)
    server_lsn: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    batches: list[Entry] = field(default_factory=list)  # copies too
    state: ReplicaState | None = None
    state_lsn: int = 0
    segments: set[int] = field(default_factory=set)


class _Batch(NamedTuple):
    entry: Entry
    header: BatchHeader
    crc: int
    skip: int  # bytes before the batch in the entry


def replay(findings: Findings, *, started_before: bool = False) -> Replayed:
    """Build every replica from a log's entries and apply the consequences of damage. Raises UnsupportedVersion."""
    result = Replayed()
    if started_before and not findings.segments:
        _doubt_all(result, Damage(make_lsn(1, 0), None), "the log is gone")
    found: dict[Key, _Found] = {}
    for log in findings.segments:
        for entry in log.entries:
            try:
                _take(result, found, entry)
            except UnsupportedVersion as error:
                raise UnsupportedVersion(f"segment {log.sequence:016x}: {error.message}") from None
    for key, parts in found.items():
        hosted = _build(result, key, parts)
        if hosted is not None:
            result.replicas[key] = hosted
    _judge_missing_segments(result, findings)
    for damage in findings.middle:
        _judge_middle(result, damage)
    for tail in findings.tails:
        _doubt_all(result, tail, "the tail of the log was damaged and cut")
    return result


def _take(result: Replayed, found: dict[Key, _Found], entry: Entry) -> None:
    key = (entry.stream_id, entry.range_index)
    if entry.kind is Kind.SERVER:
        result.server, result.server_lsn = ServerState.unpack(entry.digest), entry.lsn
    elif entry.kind is Kind.FLOOR:
        _raise_floor(result, entry.stream_id, entry.range_index, unpack_epoch(entry.digest), entry.lsn)
    elif entry.kind is Kind.TOMBSTONE:
        as_of_lsn, epoch = unpack_tombstone(entry.digest)
        result.tombstones[key] = Tombstone(as_of_lsn, epoch, entry.lsn, set())
        _raise_floor(result, entry.stream_id, entry.range_index, epoch, entry.lsn)
    else:
        parts = found.setdefault(key, _Found())
        parts.segments.add(split_lsn(entry.lsn)[0])
        if entry.kind in BATCH_KINDS:
            parts.batches.append(entry)
        else:
            state = unpack_state(entry.digest)
            parts.state, parts.state_lsn = state, entry.lsn


def _raise_floor(result: Replayed, stream_id: int, index: int, epoch: int, lsn: int) -> None:
    result.floors.setdefault(stream_id, DropFloor(index, epoch, lsn)).raise_to(index, epoch, lsn)


def _build(result: Replayed, key: Key, parts: _Found) -> HostedReplica | None:
    tombstone = result.tombstones.get(key)
    as_of = tombstone.as_of_lsn if tombstone else 0
    state = parts.state if parts.state_lsn >= as_of else None
    if tombstone is not None:
        tombstone.segments = {sequence for sequence in parts.segments if sequence <= split_lsn(as_of)[0]}
    born_lsn = (state.born_lsn or parts.state_lsn) if state else as_of
    batches = [entry for entry in parts.batches if entry.lsn >= born_lsn]
    if state is None and not batches:
        return None
    found = [one for entry in batches for one in _batches_of(entry)]
    if state is not None and state.sealed_end_offset is not None:
        found = _below(found, state.sealed_end_offset)
    first = min((one.header for one in found), key=lambda header: header.base_offset, default=None)
    if state is not None:
        start, epoch = state.start_offset, state.epoch
    else:
        start, epoch = (first.base_offset, first.epoch) if first is not None else (0, 0)
    hosted = HostedReplica(Replica(*key, start, epoch))
    hosted.born_lsn, hosted.state_lsn = born_lsn, parts.state_lsn
    for sequence in parts.segments:
        hosted.weigh(sequence, 0)
    try:
        _replay_batches(hosted, _latest(found))
        if state is None:
            raise Corruption("its metadata is lost")
        restore(hosted.core, state)
        hosted.follow_cut()
        hosted.written_trust = state.trust
    except RangelogError as error:
        hosted.core.quarantine(f"the log of this range is damaged: {error.message}")
        hosted.core.fenced = True
        result.problems.append(f"range {hosted}: {hosted.core.problem}")
    return hosted


def _batches_of(entry: Entry) -> Iterator[_Batch]:
    skip = 0
    for header, crc in iterate_heads(entry.digest):
        yield _Batch(entry, header, crc, skip)
        skip += header.length


def _below(found: list[_Batch], end_offset: int) -> list[_Batch]:
    """Leave out batches that were cut: they may be missing in recycled segments and still exist in others, even as copies."""
    return [one for one in found if one.header.base_offset < end_offset]


def _latest(found: list[_Batch]) -> list[_Batch]:
    """Return the latest copy of each batch, by offset. Raises Corruption where two of one offset cannot be copies."""
    latest: dict[int, _Batch] = {}
    appended_end = 0
    for one in found:
        base = one.header.base_offset
        known = latest.get(base)
        if one.entry.kind is Kind.BATCHES:
            if base < appended_end:
                raise Corruption(f"a gap: batch {base} was appended after {appended_end}")
            appended_end = one.header.end_offset
        if known is not None and (known.header.end_offset, known.crc) != (one.header.end_offset, one.crc):
            raise Corruption(f"batch {base} was moved and its copies differ")
        latest[base] = one
    return [latest[base] for base in sorted(latest)]


def _replay_batches(hosted: HostedReplica, batches: list[_Batch]) -> None:
    for entry, header, crc, skip in batches:
        if (header.stream_id, header.range_index) != hosted.key:
            raise Corruption("a batch of another range")
        try:
            hosted.core.replay_append(header, crc)
        except OutOfOrder as error:
            raise Corruption(f"a gap: {error.message}") from error
        hosted.place(header, entry.lsn, skip)
        hosted.weigh(split_lsn(entry.lsn)[0], header.length)
        hosted.core.confirm_offset = max(hosted.core.confirm_offset, entry.confirm_offset)
    hosted.strict_end = hosted.core.end_offset


def _judge_middle(result: Replayed, damage: Damage) -> None:
    if damage.range_id is None or damage.range_id == (0, 0):
        _doubt_all(result, damage, "the log is damaged")
        return
    hosted = result.replicas.get(damage.range_id)
    result.problems.append(f"range {damage.range_id[0]}/{damage.range_id[1]}: damage in {damage.where}")
    if hosted is None:
        if damage.range_id not in result.tombstones and damage.lsn not in result.server.noted:
            result.server.doubt_unknown = True
            result.server.noted.append(damage.lsn)
    elif damage.lsn >= hosted.born_lsn and not hosted.core.complete:
        hosted.core.quarantine(f"damage in {damage.where}")


def _doubt_all(result: Replayed, damage: Damage, problem: str) -> None:
    result.problems.append(f"{problem} ({damage.where})")
    for hosted in result.replicas.values():
        if hosted.born_lsn <= damage.lsn:
            hosted.core.doubt(f"{problem} ({damage.where})")
    if damage.lsn not in result.server.noted:
        result.server.noted.append(damage.lsn)
        result.server.doubt_unknown = True


def _judge_missing_segments(result: Replayed, findings: Findings) -> None:
    """Report missing segments: those that existed when the server state was written, or must have followed."""
    there = [log.sequence for log in findings.segments]
    if not there:
        return
    known = result.server.live
    goes_on = findings.segments[-1].ending is Ending.NEXT  # a full segment: the next one existed before it was full
    after = range(max(known) + 1 if known else 1, there[-1] + 1 + goes_on)
    for sequence in [*known, *after]:
        if sequence not in there:
            _doubt_all(result, Damage((sequence + 1) << 32, None), f"segment {sequence:016x} is missing")


def unhealthy(replayed: Replayed) -> list[HostedReplica]:
    """Return the replicas whose trust is not yet in the log."""
    return [hosted for hosted in replayed.replicas.values() if hosted.core.trust is not hosted.written_trust]
