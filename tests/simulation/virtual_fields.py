"""What simulated writers put into the headers of their batches in every other seed, and what must be found again of it.

The fields follow from the batch's place, so the checks know what its header must hold: on a replica after any number
of rolls, copies and recoveries, and in an object that holds its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rangelog_core.batch import check_batch, extension_of
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_proto.v1 import common_pb2
from rangelog_tier.object_reader import ObjectReader

_NOBODY_KNOWS = 0x9001


def _has_fields(seed: int) -> bool:
    return seed % 2 == 1


def _fields_of(stream_id: int, base_offset: int, count: int) -> dict[int, bytes]:
    producer = encode_producer(Producer(stream_id, 1, base_offset))
    return {Tag.PRODUCER: producer, _NOBODY_KNOWS: count.to_bytes(4, "little")}


def with_fields(seed: int, encode: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return an encoder of batches like `encode`, for the writers of a seed."""
    if not _has_fields(seed):
        return encode

    def encode_with_fields(*, stream_id: int, base_offset: int, values: Sequence[bytes], **rest: Any) -> bytes:
        extension = encode_extension(_fields_of(stream_id, base_offset, len(values)))
        return encode(stream_id=stream_id, base_offset=base_offset, values=values, extension=extension, **rest)

    return encode_with_fields


def check_batch_fields(seed: int, holder: str, data: bytes) -> None:
    """A batch has the fields that its writer gave it. Raises AssertionError."""
    header = check_batch(data)
    wanted = _fields_of(header.stream_id, header.base_offset, header.count) if _has_fields(seed) else {}
    assert extension_of(data, header) == wanted, f"{holder} holds other header fields at {header.base_offset}"


def check_object_fields(seed: int, objects: Any, described: common_pb2.Object) -> None:
    """The headers that an object keeps cover it without gap, each with its batch's fields. Raises AssertionError."""
    reader = ObjectReader(objects, described)
    kept = [each for group in reader.row_groups(0, 1 << 62) for each in reader.batch_headers(group)]
    if not _has_fields(seed):
        assert not kept, "an object keeps the headers of batches without fields"
        return
    position = described.start_offset
    for header, fields in kept:
        assert header.base_offset <= position, f"an object keeps no header for offset {position}"
        assert fields == _fields_of(described.stream_id, header.base_offset, header.count), "of another batch"
        position = header.end_offset  # one that its range's end has cut ends behind the next one's start
    assert position >= described.end_offset, f"an object keeps no header for offset {position}"
