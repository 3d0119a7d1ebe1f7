"""msgpack with hard limits: plain lists, integers, bytes, strings, booleans and nothing; no extension types, no maps."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

from rangelog_core.errors import ProtocolViolation


def pack(fields: list[Any]) -> bytes:
    """Encode a list."""
    data: bytes = msgpack.packb(fields, use_bin_type=True)
    return data


def unpack(data: bytes) -> list[object]:
    """Decode a list. Raises ProtocolViolation.

    No length may exceed the size of `data`; each level of nesting may use 80 KB temporarily, with 1,024 levels at most.
    """
    try:
        fields = msgpack.unpackb(data, raw=False, max_map_len=0, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolViolation("not a packed message") from error
    if not isinstance(fields, list):
        raise ProtocolViolation("not a packed list")
    return fields


def check_kinds(fields: list[object], kinds: list[tuple[type, ...]]) -> None:
    """Raise ProtocolViolation unless each field is exactly of one of its types (a bool is no int)."""
    if len(fields) != len(kinds):
        raise ProtocolViolation(f"{len(fields)} fields where {len(kinds)} belong")
    for field, kind in zip(fields, kinds, strict=True):
        if type(field) not in kind:
            raise ProtocolViolation(f"a field is {type(field).__name__}")
        if type(field) is int and not 0 <= field < 1 << 63:
            raise ProtocolViolation("an integer is out of range")
