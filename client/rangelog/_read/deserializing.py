"""What the program's own functions make of keys and values that are read.

What holds: the record whose function raises counts as handed out, so a `commit` behind it skips it, and without one it is
read again; no record behind it is lost: of a poll those before it are returned first, and the next poll raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_core.errors import InvalidArgument
from rangelog_core.record import Record

Deserialize = Callable[[Record], Record]


def deserializer(key: Callable[[bytes], Any] | None, value: Callable[[bytes], Any] | None) -> Deserialize | None:
    """Return the function that makes a record's key and value; None: there is nothing to make. Raises InvalidArgument."""
    if not any_of(key, value):
        return None

    def deserialize(record: Record) -> Record:
        offset, timestamp_ms, raw_key, raw_value, headers = record
        try:
            made_key = raw_key if key is None or raw_key is None else key(raw_key)
            made_value = raw_value if value is None else value(raw_value)
        except Exception as error:
            error.add_note(f"of the record at offset {offset}")
            raise
        return Record(offset, timestamp_ms, made_key, made_value, headers)

    return deserialize


def any_of(key: object, value: object) -> bool:
    """Whether there is a function. Raises InvalidArgument for what is none."""
    for name, each in (("key_deserializer", key), ("value_deserializer", value)):
        if each is not None and not callable(each):
            raise InvalidArgument(f"{name} is a function of bytes, not {each!r}")
    return key is not None or value is not None
