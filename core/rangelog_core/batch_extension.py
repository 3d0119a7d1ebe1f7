"""The extension of a record batch's header: fields behind the fixed 64 bytes, by which the header grows.

    field: tag u16 · length u16 · value · zeros up to the next multiple of 8 bytes
    tag 0               none
    tags 1 … 0x7FFF     critical: a reader of the records that does not know the tag refuses the batch
    tags 0x8000 …       optional: a program that does not know the tag ignores the field and keeps it

Little-endian. Tags rise, each at most once, and padding is zero, so one set of fields has one encoding. The batch's
checksum covers the extension. Range servers interpret no records: they store and forward batches with any fields.

What holds: `decode_extension` allocates no more than it was given, and what it takes encodes to the same bytes again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, ProtocolViolation, UnsupportedVersion

CRITICAL_TAG_MAX = 0x7FFF
TAG_MAX = 0xFFFF
FIELD_ALIGNMENT_BYTES = 8
EXTENSION_BYTES_MAX = 960
"""With the fixed part 1 KiB: more belongs into records. Also bounds what a hostile header makes a reader parse."""

_FIELD = struct.Struct("<HH")
_PRODUCER = struct.Struct("<QQI")
_MERGED = struct.Struct("<QQQQI")
_SUBMISSION = struct.Struct("<16sQ")
_RUN = struct.Struct("<II")
_U64_MAX = (1 << 64) - 1
_U32_MAX = (1 << 32) - 1


class Tag(IntEnum):
    """Every assigned tag. A number is never reused."""

    BODY_ENCODING = 1  # reserved: the body is not this program's columns
    CONTROL = 2  # reserved: the records are not a user's
    PRODUCER = 0x8001  # the sender of the batch and its number: see Producer
    TRANSACTION = 0x8002  # what a transaction staged and its commit merged: see MergedFrom
    KEY_RANGE = 0x8003  # reserved: which slice of the key space, by which version of its map
    SUBMISSION = 0x8004  # the submission that the records are of, which is in the log once: see Submission


KNOWN_CRITICAL_TAGS: frozenset[int] = frozenset()
"""Critical tags that this program's readers understand."""


OWN_IDS = 1 << 63
"""Producer ids from here on are drawn by lot, one for each producer: no later instance has the same."""
DATED_EPOCHS = 1 << 24
"""Epochs of such an id from here on are dates, in minutes since 1970: shards forget producers by them."""


class Producer(NamedTuple):
    """The sender of a batch: `sequence` counts the batches of one (producer_id, epoch), which makes a retry harmless."""

    producer_id: int
    epoch: int
    sequence: int


def is_dated(producer_id: int, epoch: int) -> bool:
    """Whether an epoch is the date at which a producer with an id of its own began to use it."""
    return producer_id >= OWN_IDS and epoch >= DATED_EPOCHS


class MergedFrom(NamedTuple):
    """Where a batch was staged: by transaction `number` of `producer_id`, at a shard of the same topic, as its `sequence`.

    `follow`: so many more batches of the run are merged right behind this one.
    """

    producer_id: int
    number: int
    shard_id: int
    sequence: int
    follow: int


DIGEST_BYTES = 16
RUNS_MAX = 100
"""Of one batch: what fits into an extension."""


class Submission(NamedTuple):
    """Records that were submitted under one name, some of which are in this batch: each of them is in the log once.

    `digest`: of the name and of who gave it, DIGEST_BYTES. `content`: a hash of all records that were submitted, 64 bits:
    another content under the name is refused. `runs`: which of the records the batch has, as (first, count), rising and apart;
    records are numbered by the positions of their keys, then as they were submitted, so that what a shard gets is one run.
    """

    digest: bytes
    content: int
    runs: tuple[tuple[int, int], ...]


def encode_extension(fields: Mapping[int, bytes]) -> bytes:
    """Return the extension that holds these fields, by tag; empty for none. Raises InvalidArgument.

    >>> encode_extension({Tag.PRODUCER: encode_producer(Producer(producer_id=7, epoch=1, sequence=0))}).hex()
    '018014000700000000000000000000000000000001000000'
    """
    parts: list[bytes] = []
    for tag in sorted(fields):
        value = fields[tag]
        if not 0 < tag <= TAG_MAX:
            raise InvalidArgument(f"a batch header's tag is 1 to {TAG_MAX}, not {tag}")
        if len(value) > EXTENSION_BYTES_MAX:
            raise InvalidArgument(f"a batch header's field of {len(value)} bytes; the limit is {EXTENSION_BYTES_MAX}")
        parts += [_FIELD.pack(tag, len(value)), value, bytes(-(_FIELD.size + len(value)) % FIELD_ALIGNMENT_BYTES)]
    extension = b"".join(parts)
    if len(extension) > EXTENSION_BYTES_MAX:
        raise InvalidArgument(
            f"a batch header's extension of {len(extension)} bytes; the limit is {EXTENSION_BYTES_MAX}"
        )
    return extension


def decode_extension(data: bytes) -> dict[int, bytes]:
    """Return the fields of an extension, by tag. Raises ProtocolViolation."""
    if len(data) > EXTENSION_BYTES_MAX or len(data) % FIELD_ALIGNMENT_BYTES:
        raise ProtocolViolation(f"a record batch's header extension of {len(data)} bytes")
    fields: dict[int, bytes] = {}
    position = last = 0
    while position < len(data):
        tag, length = _FIELD.unpack_from(data, position)
        start = position + _FIELD.size
        end = start + length
        position = end + -end % FIELD_ALIGNMENT_BYTES
        if tag <= last:
            raise ProtocolViolation(f"a record batch's header has the tag {tag} behind {last}")
        if position > len(data):
            raise ProtocolViolation("a record batch's header extension is cut short")
        if end != position and any(data[end:position]):
            raise ProtocolViolation("a record batch's header extension has bytes where it is padded")
        fields[tag] = data[start:end]
        last = tag
    return fields


def require_known(tags: Iterable[int]) -> None:
    """Check the tags of an extension before records are read by it. Raises UnsupportedVersion on an unknown critical one."""
    unknown = [tag for tag in tags if tag <= CRITICAL_TAG_MAX and tag not in KNOWN_CRITICAL_TAGS]
    if unknown:
        raise UnsupportedVersion(
            f"a record batch has the header field {unknown[0]}, which a reader must know: upgrade this program"
        )


def encode_producer(producer: Producer) -> bytes:
    """Return the value of a PRODUCER field. Raises InvalidArgument."""
    producer_id, epoch, sequence = producer
    if not (0 <= producer_id <= _U64_MAX and 0 <= sequence <= _U64_MAX and 0 <= epoch <= _U32_MAX):
        raise InvalidArgument(f"{producer} is out of bounds")
    return _PRODUCER.pack(producer_id, sequence, epoch)


def decode_producer(value: bytes) -> Producer:
    """Read the value of a PRODUCER field. Raises ProtocolViolation."""
    if len(value) != _PRODUCER.size:
        raise ProtocolViolation(f"a record batch's producer field of {len(value)} bytes")
    producer_id, sequence, epoch = _PRODUCER.unpack(value)
    return Producer(producer_id, epoch, sequence)


def encode_merged(merged: MergedFrom) -> bytes:
    """Return the value of a TRANSACTION field. Raises InvalidArgument."""
    *wide, follow = merged
    if not (all(0 <= each <= _U64_MAX for each in wide) and 0 <= follow <= _U32_MAX):
        raise InvalidArgument(f"{merged} is out of bounds")
    return _MERGED.pack(*merged)


def decode_merged(value: bytes) -> MergedFrom:
    """Read the value of a TRANSACTION field. Raises ProtocolViolation."""
    if len(value) != _MERGED.size:
        raise ProtocolViolation(f"a record batch's transaction field of {len(value)} bytes")
    return MergedFrom(*_MERGED.unpack(value))


def encode_submission(submission: Submission) -> bytes:
    """Return the value of a SUBMISSION field. Raises InvalidArgument.

    >>> len(encode_submission(Submission(bytes(16), 7, ((0, 3), (5, 1)))))
    40
    """
    digest, content, runs = submission
    if len(digest) != DIGEST_BYTES or not 0 <= content <= _U64_MAX or not _are_runs(runs):
        raise InvalidArgument(f"{submission} is out of bounds")
    return _SUBMISSION.pack(digest, content) + b"".join([_RUN.pack(*each) for each in runs])


def decode_submission(value: bytes, count: int) -> Submission:
    """Read the value of a SUBMISSION field of a batch of `count` records. Raises ProtocolViolation."""
    if len(value) < _SUBMISSION.size or (len(value) - _SUBMISSION.size) % _RUN.size:
        raise ProtocolViolation(f"a record batch's submission field of {len(value)} bytes")
    digest, content = _SUBMISSION.unpack_from(value)
    runs = tuple(_RUN.iter_unpack(value[_SUBMISSION.size :]))
    if not _are_runs(runs) or sum([each[1] for each in runs]) != count:
        raise ProtocolViolation(f"a record batch of {count} records has other ones of its submission: {runs[:5]}")
    return Submission(digest, content, runs)


def _are_runs(runs: tuple[tuple[int, int], ...]) -> bool:
    """Whether runs rise, with at least one record between two of them."""
    end = -1
    for first, count in runs:
        if first <= end or count < 1 or first + count > _U32_MAX:
            return False
        end = first + count
    return 0 < len(runs) <= RUNS_MAX


def origin_of(fields: Mapping[int, bytes], count: int) -> Producer | Submission | MergedFrom | None:
    """Return where a shard's batch of `count` records comes from; None: its fields do not say. Raises ProtocolViolation.

    A batch that names a producer is that producer's, whatever else it names: its owner took it for one. So who appends a batch
    and who replays it never differ.
    """
    producer = fields.get(Tag.PRODUCER)
    if producer is not None:
        return decode_producer(producer)
    submission = fields.get(Tag.SUBMISSION)
    if submission is not None:
        return decode_submission(submission, count)
    merged = fields.get(Tag.TRANSACTION)
    return decode_merged(merged) if merged is not None else None
