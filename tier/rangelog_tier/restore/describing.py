"""An object by its own words: the fields of its commit, read from the object.

What holds: what is returned fits to the object's key. Of an object that no list names every byte was read: its row groups fit
their checksums, and the digest is that of all of it.
"""

from __future__ import annotations

from rangelog_core.errors import Corruption
from rangelog_core.limits import KIB, MIB
from rangelog_core.object_keys import parse_object_key
from rangelog_proto.v1 import common_pb2
from rangelog_tier.object_cipher import is_encrypted, key_id_of
from rangelog_tier.object_reader import ObjectReader, checksum
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.restore.known import DescribedObject
from rangelog_tier.storing import stored_digest

_TAIL_BYTES = 64 * KIB
_SIZE_BYTES_MIN = 12  # magic, footer length, magic
_LAST_BYTES = 8  # footer length and magic
_FOOTER_BYTES_MAX = 64 * MIB
ROW_GROUPS_MAX = 512
"""Of an object with more none is told: its readers get them from the footer."""


def describe(store: ObjectStore, key: str, size_bytes: int, *, whole: bool) -> DescribedObject:
    """Read an object's footer, or (`whole`) all of it. Raises Corruption, ObjectNotFound, UnsupportedVersion, Unavailable."""
    place = parse_object_key(key)
    if place is None or size_bytes < _SIZE_BYTES_MIN:
        raise Corruption(f"{key} is no object")
    tail = store.get_range(key, max(0, size_bytes - _TAIL_BYTES), min(size_bytes, _TAIL_BYTES))
    footer_size = int.from_bytes(tail[-_LAST_BYTES:-4], "little") + _LAST_BYTES
    if footer_size > min(size_bytes, _FOOTER_BYTES_MAX):
        raise Corruption(f"object {key} has a footer larger than itself")
    if footer_size > len(tail):
        tail = store.get_range(key, size_bytes - footer_size, footer_size)
    found = common_pb2.Object(
        object_id=place.object_id,
        stream_id=place.stream_id,
        range_index=place.range_index,
        start_offset=place.start_offset,
        end_offset=place.end_offset,
        key=key,
        size_bytes=size_bytes,
        state=common_pb2.OBJECT_STATE_COMMITTED,
        footer_size_bytes=footer_size,
        footer_crc=checksum(tail[len(tail) - footer_size :]),
    )
    if is_encrypted(tail):
        found.encryption_key_id = key_id_of(tail[len(tail) - footer_size :])
    reader = ObjectReader(store, found)
    told = reader.metadata
    groups = reader.row_group_rows()
    if groups:
        found.timestamp_ms_min = min(each.timestamp_ms_min for each in groups)
        found.timestamp_ms_max = max(each.timestamp_ms_max for each in groups)
    if len(groups) <= ROW_GROUPS_MAX:
        found.row_groups.extend(groups)
    epoch = told.get("rangelog.epoch", "")
    if not epoch.isdecimal() or len(epoch) > 18:
        raise Corruption(f"object {key} does not tell its epoch")
    found.epoch = int(epoch)
    if whole:
        for _ in reader.read(place.start_offset, place.end_offset):
            pass
        found.digest = stored_digest(store, key, size_bytes)
    return DescribedObject(found, told.get("rangelog.stream", ""))
