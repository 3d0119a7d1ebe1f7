"""The content encodings of request bodies, undone within a limit. No I/O.

What holds: no more is decompressed than the limit and one byte, whatever a body claims, and a body of many empty parts is
refused: each costs time, and has no bytes that a limit would count.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import zstandard

from rangelog.errors import InvalidArgument, RecordTooLarge

_WINDOW_BYTES_MAX = 8 * 1024 * 1024
PARTS_MAX = 100
"""Members of gzip, or frames of zstd, in one body."""
_STEP_BYTES = 256
"""Of zstd at a time: it becomes 8 MiB at most, since a block of 4 bytes becomes 128 KiB."""


def decoded(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return a body as it was before its content encoding: gzip, deflate, zstd, or "" and identity for none.

    Raises:
        RecordTooLarge: It is above the limit of bytes.
        InvalidArgument: The encoding is not known, or the body is damaged or cut.

    Example:
        >>> decoded(zlib.compress(b"hello"), "deflate", 100)
        b'hello'
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    undo = _ENCODINGS.get(name)
    if undo is None:
        raise InvalidArgument(f"content encoding {name[:40]!r}: there are {', '.join(_ENCODINGS)} and identity")
    if not body:
        return body
    try:
        plain = undo(body, bytes_max + 1)
    except (zlib.error, zstandard.ZstdError) as error:
        raise InvalidArgument(f"the body is not {name}: {error}") from None
    if len(plain) > bytes_max:
        raise RecordTooLarge(f"the body is above the limit of {bytes_max} bytes once its {name} is undone")
    return plain


def _gzip(body: bytes, bytes_max: int) -> bytes:
    plain = bytearray()
    for _ in range(PARTS_MAX):
        one = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        plain += _whole(one, body, bytes_max - len(plain))
        body = one.unused_data.lstrip(b"\0")
        if not body or len(plain) >= bytes_max:
            return bytes(plain)
    raise zlib.error(f"it has more than {PARTS_MAX} members")


def _deflate(body: bytes, bytes_max: int) -> bytes:
    one = zlib.decompressobj()
    try:
        return _whole(one, body, bytes_max)
    except zlib.error:  # as some clients send it: without the two bytes of its head
        return _whole(zlib.decompressobj(wbits=-zlib.MAX_WBITS), body, bytes_max)


def _whole(one: zlib._Decompress, body: bytes, bytes_max: int) -> bytes:
    """Return the first bytes of a member. Raises zlib.error where it ends early."""
    plain = one.decompress(body, bytes_max)
    if not one.eof and len(plain) < bytes_max:
        raise zlib.error("it ends early")
    return plain


def _zstd(body: bytes, bytes_max: int) -> bytes:
    plain = bytearray()
    for _ in range(PARTS_MAX):
        one = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).decompressobj()
        at = 0
        while not one.eof and len(plain) < bytes_max:
            if at >= len(body):
                raise zstandard.ZstdError("it ends early")
            plain += one.decompress(body[at : at + _STEP_BYTES])
            at += _STEP_BYTES
        body = one.unused_data + body[at:]
        if not body or len(plain) >= bytes_max:
            return bytes(plain[:bytes_max])
    raise zstandard.ZstdError(f"it has more than {PARTS_MAX} frames")


_ENCODINGS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
