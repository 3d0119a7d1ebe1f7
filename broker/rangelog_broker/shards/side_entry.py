"""The entries of a shard's side log, as the values of its records: pieces of snapshots of its state, and staged batches.

    kind u8 = 1 · epoch u64 · offset u64 · piece u32 · pieces u32 · data                     (all little-endian)
    kind u8 = 2 · producer id u64 · epoch u32 · sequence u64 · number u64 · size u16 · transactional id · batch

What holds: a snapshot is (epoch, offset): the state of all batches below `offset`, written by the owner of `epoch`. It counts
once all its pieces are in the log, in order. Whoever wrote it, and when, it holds the same: the acked batches below its offset.
So of several the one with the highest offset is the best, and none is wrong. Staged batches may stand between its pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from rangelog.errors import Corruption, UnsupportedVersion
from rangelog_broker.shards.staging import STAGERS, Staging
from rangelog_core.batch_extension import Producer

SNAPSHOT_PIECE, STAGED = 1, 2
_PIECE = struct.Struct("<BQQII")
_STAGED = struct.Struct("<BQIQQH")
PIECES_MAX = 1_000_000


class SideSnapshot(NamedTuple):
    """The state below an offset, in pieces; `first_record` and on is where the side log holds it."""

    offset: int
    pieces: tuple[bytes, ...]
    first_record: int


def encode_piece(epoch: int, offset: int, piece: int, pieces: int, data: bytes) -> bytes:
    """Return the value of one record."""
    return _PIECE.pack(SNAPSHOT_PIECE, epoch, offset, piece, pieces) + data


def encode_snapshot(epoch: int, offset: int, pieces: Iterable[bytes]) -> list[bytes]:
    """Return the records of a snapshot; that of an empty state has one empty piece.

    >>> len(encode_snapshot(1, 0, []))
    1
    """
    parts = list(pieces) or [b""]
    return [encode_piece(epoch, offset, number, len(parts), part) for number, part in enumerate(parts)]


def encode_staged(number: int, name: str, producer: Producer, data: bytes) -> bytes:
    """Return the value of one record: a batch of transaction `number` of the transactional id `name`."""
    encoded = name.encode()
    return _STAGED.pack(STAGED, *producer, number, len(encoded)) + encoded + data


class SideFold:
    """What the records of a side log, fed in order, come to: the best whole snapshot, and what is staged."""

    def __init__(self) -> None:
        self.best: SideSnapshot | None = None
        self.staging = Staging()
        self._of: tuple[int, int, int] | None = None
        self._pieces: list[bytes] = []
        self._first_record = 0

    def feed(self, record_offset: int, value: bytes) -> None:
        """Take the next record. Raises Corruption, UnsupportedVersion."""
        if value[:1] == bytes((SNAPSHOT_PIECE,)) and len(value) >= _PIECE.size:
            self._piece(record_offset, value)
        elif value[:1] == bytes((STAGED,)) and len(value) >= _STAGED.size:
            self._staged(record_offset, value)
        elif value and value[0] not in (SNAPSHOT_PIECE, STAGED):
            raise UnsupportedVersion(
                f"record {record_offset} of a side log is of kind {value[0]}: upgrade this program"
            )
        else:
            raise Corruption(f"record {record_offset} of a side log is cut short")

    def _piece(self, record_offset: int, value: bytes) -> None:
        _, epoch, offset, piece, pieces = _PIECE.unpack_from(value)
        if not 0 <= piece < pieces <= PIECES_MAX:
            raise Corruption(f"record {record_offset} of a side log is piece {piece} of {pieces}")
        if piece == 0:
            self._of, self._pieces, self._first_record = (epoch, offset, pieces), [], record_offset
        elif self._of != (epoch, offset, pieces) or piece != len(self._pieces):
            self._of = None  # the start was trimmed, or its owner was deposed in between
            return
        self._pieces.append(value[_PIECE.size :])
        if piece == pieces - 1:
            if self.best is None or offset >= self.best.offset:
                self.best = SideSnapshot(offset, tuple(self._pieces), self._first_record)
                self.staging.restore(piece for piece in self._pieces if piece[:1] == STAGERS)
            self._of, self._pieces = None, []

    def _staged(self, record_offset: int, value: bytes) -> None:
        _, producer_id, epoch, sequence, number, size = _STAGED.unpack_from(value)
        at = _STAGED.size + size
        try:
            name = value[_STAGED.size : at].decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"record {record_offset} of a side log names no transaction") from error
        if not name or at >= len(value):
            raise Corruption(f"record {record_offset} of a side log has no batch, or no transaction")
        self.staging.add(number, name, Producer(producer_id, epoch, sequence), value[at:], record_offset)
