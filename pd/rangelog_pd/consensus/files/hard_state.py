"""The hard state of a Raft member: its term, its vote, and how much of its journal was durable.

What holds: the file is replaced whole and flushed before `store` returns, so a vote is durable before it is cast; a
damaged file is Corruption, never treated as a new one. `durable_index` is a lower bound: entries up to it were flushed, so
a journal that ends below it has lost entries. It is the commit index while the member runs (which no election reverts) and
the last index after a clean stop.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_core.versions import VersionRange, unsupported
from rangelog_pd.consensus.files.disk import REAL_FILES, Files, read_whole
from rangelog_pd.consensus.files.durable_file import write_atomically
from rangelog_pd.consensus.files.packing import check_kinds, pack, unpack

_NAME, _VERSION = b"RLVOTE", 1
_MAGIC = _NAME + b"%02d" % _VERSION
_HEAD = struct.Struct("<8sII")  # magic, crc32c of the body, length of the body
_BODY_BYTES_MAX = 4096


@dataclass(frozen=True)
class HardState:
    """One member's hard state. `voter` is false until the member holds all entries that were committed when it joined: a
    member that lost its disk must not elect a leader that lacks entries which it had acknowledged."""

    name: str
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 0
    durable_index: int = 0
    voter: bool = False


def _check(path: Path, magic: bytes, crc: int, length: int, body: bytes) -> None:
    """Raise Corruption; UnsupportedVersion for a whole file of a later version, whose checksum covers the magic too."""
    if length == len(body) and magic == _MAGIC and crc == google_crc32c.value(body):
        return
    digits = magic.removeprefix(_NAME)
    later = magic.startswith(_NAME) and digits.isdigit() and int(digits) > _VERSION
    if later and length == len(body) and crc == google_crc32c.value(magic + body):
        raise unsupported(str(path), int(digits), VersionRange(1, _VERSION), "this placement driver")
    raise Corruption(f"{path}: the checksum does not fit")


def store(path: Path, state: HardState, *, files: Files = REAL_FILES) -> None:
    """Replace the file. Durable on return."""
    body = pack([state.name, state.term, state.voted_for, state.commit_index, state.durable_index, state.voter])
    write_atomically(files, path, [_HEAD.pack(_MAGIC, google_crc32c.value(body), len(body)), body])


def load(path: Path, *, files: Files = REAL_FILES) -> HardState | None:
    """Return the state, or None where there is no file. Raises Corruption, UnsupportedVersion."""
    data = read_whole(files, path, bytes_max=_HEAD.size + _BODY_BYTES_MAX)
    if data is None:
        return None
    if len(data) < _HEAD.size or len(data) > _HEAD.size + _BODY_BYTES_MAX:
        raise Corruption(f"{path}: {len(data)} bytes or more cannot be a vote file")
    magic, crc, length = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    _check(path, magic, crc, length, body)
    try:
        fields: list[Any] = unpack(body)
        check_kinds(fields, [(str,), (int,), (str, type(None)), (int,), (int,), (bool,)])
    except ProtocolViolation as error:
        raise Corruption(f"{path}: not a vote file of this version") from error
    return HardState(*fields)
