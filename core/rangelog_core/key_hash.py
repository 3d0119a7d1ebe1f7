"""Where a record's key lies in a topic's key space.

What holds: equal keys have equal positions, in each program and version, for ever: order per key rests on it. The positions are
spread evenly: BLAKE2b (RFC 7693) with a digest of 16 bytes, unkeyed, read as a big-endian number.
"""

from __future__ import annotations

from hashlib import blake2b

from rangelog_core.key_ranges import KEY_BYTES


def key_position(key: bytes) -> int:
    """Return the position of a key, from 0 to below 2^128.

    >>> f"{key_position(b'UA'):032x}"
    'bbcff2a5fe511cfa8470070b6f6825da'
    """
    return int.from_bytes(blake2b(key, digest_size=KEY_BYTES).digest(), "big")
