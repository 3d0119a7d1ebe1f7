"""What the program's own functions make of keys and values of a topic's records; `_read.deserializing` has what holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rangelog._read.deserializing import any_of

_R = TypeVar("_R")


def shard_deserializer(
    key: Callable[[bytes], Any] | None, value: Callable[[bytes], Any] | None
) -> Callable[[_R], _R] | None:
    """Return the function for records that say their shard; None: there is nothing to make. Raises InvalidArgument."""
    if not any_of(key, value):
        return None

    def deserialize(record: Any) -> Any:
        try:
            made_key = record.key if key is None or record.key is None else key(record.key)
            made_value = record.value if value is None else value(record.value)
        except Exception as error:
            error.add_note(f"of the record at offset {record.offset} of shard {record.shard_id}")
            raise
        return record._replace(key=made_key, value=made_value)

    return deserialize
