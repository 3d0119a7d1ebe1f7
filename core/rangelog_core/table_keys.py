"""The keys of a table's rows: a key of its own, or a key within a family. All keys of a family are in one partition.

What holds: two pairs of family and key have one row key if and only if they are equal. In a partition the rows without a family
come first, in order of keys; then the families in order, each with its keys in order.

    a key of its own     00 · key
    a key of a family    01 · family, each 00 in it followed by FF · 00 01 · key
"""

from __future__ import annotations

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.key_hash import key_position
from rangelog_core.limits import TABLE_KEY_BYTES_MAX

_ALONE, _OF_FAMILY = b"\x00", b"\x01"
_ZERO, _ESCAPED_ZERO, _END = b"\x00", b"\x00\xff", b"\x00\x01"


def row_key(key: bytes, family: bytes | None = None) -> bytes:
    """Return the key of a row. Raises InvalidArgument for an empty or too long key, or an empty family.

    Example:
        >>> row_key(b"k"), row_key(b"k", b"f")
        (b'\\x00k', b'\\x01f\\x00\\x01k')
    """
    if not key:
        raise InvalidArgument("a key of a table has at least one byte")
    made = key_prefix(family) + key
    if len(made) > TABLE_KEY_BYTES_MAX:
        raise InvalidArgument(f"key and family have {len(made)} bytes as stored; the limit is {TABLE_KEY_BYTES_MAX}")
    return made


def key_prefix(family: bytes | None) -> bytes:
    """Return what the row keys of a family begin with; None: those of the rows without a family. Raises InvalidArgument."""
    if family is None:
        return _ALONE
    if not family:
        raise InvalidArgument("a family of a table's keys has at least one byte")
    return _OF_FAMILY + family.replace(_ZERO, _ESCAPED_ZERO) + _END


def split_row_key(stored: bytes) -> tuple[bytes, bytes | None]:
    """Return key and family of a row. Raises Corruption.

    Example:
        >>> split_row_key(b"\\x01f\\x00\\x01k")
        (b'k', b'f')
    """
    if stored[:1] == _ALONE and len(stored) > 1:
        return stored[1:], None
    if stored[:1] == _OF_FAMILY:
        end = stored.find(_ZERO, 1)
        while end >= 0 and stored[end : end + 2] == _ESCAPED_ZERO:
            end = stored.find(_ZERO, end + 2)
        if end > 1 and stored[end : end + 2] == _END and len(stored) > end + 2:
            return stored[end + 2 :], stored[1:end].replace(_ESCAPED_ZERO, _ZERO)
    raise Corruption("the key of a table's row is not one that a client has made")


def table_position(key: bytes, family: bytes | None = None) -> int:
    """Return where a row lies in the table's key space: the position of its family, or of its own key."""
    return key_position(key if family is None else family)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key behind all keys with a prefix; None: no key is behind them.

    Example:
        >>> prefix_end(b"ab"), prefix_end(b"a\\xff"), prefix_end(b"\\xff")
        (b'ac', b'b', None)
    """
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes([rest[-1] + 1]) if rest else None
