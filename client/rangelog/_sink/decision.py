"""What a sink has decided to append, as records of its control stream. No I/O.

A control stream has one writer, so its decisions are in order. Its records, told apart by their keys:

    b"piece", b"batch"   parts of encoded record batches: those of tasks whose output was small
    b"decision"          JSON: the batch of work, and the spans of staged batches that are appended for it, in order
    b"chunk"             JSON: batches of the last decision, and the transaction that is about to commit them to a topic
    b"done"              the last decision is carried out

What holds: a batch of work has one decision, whatever its tasks return when it is run again. Every staged batch carries a
mark, its task's attempt and its number, into the target; those of a decision that are there are a prefix of them, since they
are appended in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX

PIECE, BATCH, DECISION, CHUNK, DONE = b"piece", b"batch", b"decision", b"chunk", b"done"
_VERSION = 1
_PIECE_BYTES_MAX = RECORD_SIZE_BYTES_MAX // 2
_BATCH_BYTES_MAX = 16 * RECORD_SIZE_BYTES_MAX
"""More than any encoded batch."""

Mark = tuple[int, int]
"""A task's attempt, and the number of one of its batches from 0."""


def mark_extension(attempt: int, number: int) -> bytes:
    """Return the header extension of a staged batch: its mark, in the field of a producer's batches."""
    return encode_extension({Tag.PRODUCER: encode_producer(Producer(attempt, 0, number))})


@dataclass(frozen=True, slots=True)
class StagedSpan:
    """The batches of one task's attempt: the records [start, end) of a stream hold them, in pieces.

    `batches`: their number; `records`: what they hold.
    """

    attempt: int
    stream: str
    stream_id: int
    start: int
    end: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch of work by its number, and what is appended for it. No part of it is in the target below `target_from`."""

    number: int
    target_from: int
    spans: tuple[StagedSpan, ...]

    @property
    def batches(self) -> int:
        """The staged batches of all spans."""
        return sum(span.batches for span in self.spans)

    @property
    def records(self) -> int:
        """The records of all spans."""
        return sum(span.records for span in self.spans)

    def encode(self) -> bytes:
        """Return the value of its record. Raises InvalidArgument if there are too many tasks."""
        spans = [[s.attempt, s.stream, s.stream_id, s.start, s.end, s.batches, s.records] for s in self.spans]
        body = {"version": _VERSION, "number": self.number, "target_from": self.target_from, "spans": spans}
        data = json.dumps(body, separators=(",", ":")).encode()
        if len(data) > _PIECE_BYTES_MAX:
            raise InvalidArgument(f"{len(self.spans):,} tasks wrote at once: coalesce to some thousands at most")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Decision:
        """Raises Corruption, UnsupportedVersion."""
        body = _body(data)
        try:
            spans = tuple(_span(each) for each in body["spans"])
            return cls(_whole(body["number"]), _whole(body["target_from"]), spans)
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"a decision of a sink does not decode: {error!r}") from error

    def check_repeat(self, number: int, records: int) -> None:
        """Check a batch of work that is committed again, where this is the last decision: it must be the same one, by its size.

        Raises PreconditionFailed: whoever repeats an earlier one, or another one, would not have it appended.
        """
        if (number, records) == (self.number, self.records):
            return
        appended = (
            f"with {self.records} rows, not {records}" if number == self.number else f"and {self.number} after it"
        )
        raise PreconditionFailed(
            f"micro-batch {number} of this query was appended before, {appended}: the checkpoint is an older copy, or the "
            "query returns other rows when it is run again; give it a new checkpoint, or accept that with check_repeats=false"
        )

    def copied(self, marks: Iterable[Mark], *, cut: bool = False) -> int | None:
        """Return how many of its batches are in the target, which has these marks; None if that cannot be seen.

        `cut`: some marks may be missing before the first. Raises Corruption if those that are there do not follow each other.
        """
        places: dict[int, tuple[int, int]] = {}
        at = 0
        for span in self.spans:
            places[span.attempt] = (at, span.batches)
            at += span.batches
        copied = None if cut else 0
        for attempt, number in marks:
            first, batches = places.get(attempt, (0, 0))
            if number >= batches:
                continue  # another's
            if copied is not None and first + number != copied:
                raise Corruption(
                    f"batch {copied} of the sink's decision {self.number} is missing or repeated in the target"
                )
            copied = first + number + 1
        return copied


@dataclass(frozen=True, slots=True)
class SinkChunk:
    """The batches [first, end) of a decision, and the number of the transaction that commits them."""

    first: int
    end: int
    producer_id: int
    transaction: int

    def encode(self) -> bytes:
        """Return the value of its record."""
        return json.dumps(
            {"version": _VERSION, "chunk": [self.first, self.end, self.producer_id, self.transaction]}
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> SinkChunk:
        """Raises Corruption, UnsupportedVersion."""
        body = _body(data)
        try:
            first, end, producer_id, transaction = (_whole(each) for each in body["chunk"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"a chunk of a sink's decision does not decode: {error!r}") from error
        return cls(first, end, producer_id, transaction)


class ControlLog:
    """The fold of a control stream's records."""

    def __init__(self) -> None:
        self.last: Decision | None = None
        self.last_offset = 0
        self.chunk: SinkChunk | None = None
        """Of the last decision: the transaction that was about to begin last."""
        self.done = True
        """Whether the last decision is known to be carried out."""

    def note(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Add the next record. Raises Corruption, UnsupportedVersion."""
        if key == DECISION:
            decision = Decision.decode(value)
            if self.last is not None and decision.number <= self.last.number:
                raise Corruption(f"a sink decided on {decision.number} after {self.last.number}")
            self.last, self.last_offset, self.chunk, self.done = decision, offset, None, False
        elif key == CHUNK:
            self.chunk = SinkChunk.decode(value)
        elif key == DONE:
            self.done = True
        elif key not in (PIECE, BATCH):
            raise Corruption(f"a record of an unknown kind at {offset} of a sink's control stream")

    def has(self, number: int) -> bool:
        """Whether a batch of work is decided on, or is before one that is."""
        return self.last is not None and number <= self.last.number


def split(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) of the records that hold an encoded batch, which may be larger than one record."""
    last = max(0, len(data) - 1) // _PIECE_BYTES_MAX * _PIECE_BYTES_MAX
    for at in range(0, last, _PIECE_BYTES_MAX):
        yield PIECE, data[at : at + _PIECE_BYTES_MAX]
    yield BATCH, data[last:]


class Joining:
    """Joins the pieces of encoded batches."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def add(self, key: bytes | None, value: bytes) -> bytes | None:
        """Add the next record; return the batch that it completes. Raises Corruption."""
        self._pieces.append(value)
        self._size_bytes += len(value)
        if key not in (PIECE, BATCH) or self._size_bytes > _BATCH_BYTES_MAX:
            raise Corruption("a span of staged batches holds something else")
        if key == PIECE:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._size_bytes = [], 0
        return whole


def _body(data: bytes) -> dict[str, Any]:
    """Return the fields of a record of this version."""
    try:
        body = json.loads(data)
        version = body["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corruption(f"a record of a sink does not decode: {error!r}") from error
    if version != _VERSION:
        raise UnsupportedVersion(
            f"a record of a sink has version {version!r}, this program reads {_VERSION}: upgrade it"
        )
    return body  # type: ignore[no-any-return]


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _span(fields: list[object]) -> StagedSpan:
    attempt, stream, *rest = fields
    if type(stream) is not str or len(rest) != 5:
        raise ValueError("a span has other fields")
    return StagedSpan(_whole(attempt), stream, *(_whole(each) for each in rest))
