"""The file of a snapshot in the tier: what comes back, and that damage is told from a later version."""

from __future__ import annotations

import io
import struct

import google_crc32c
import pytest

from rangelog_core import tier_snapshot
from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_core.object_keys import ObjectKey, object_key, parse_object_key, parse_snapshot_key, snapshot_key
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader

HEADER = TierSnapshotHeader(cluster_id="c", time_ms=5, applied_index=7, cluster_version=6)


def made(*chunks: bytes) -> bytes:
    """One file."""
    target = io.BytesIO()
    assert tier_snapshot.write(target, HEADER, chunks) == len(target.getvalue())
    return target.getvalue()


def test_what_was_written_comes_back() -> None:
    """Header and state."""
    assert tier_snapshot.read(made(b"abc" * 1_000, b"", b"d"), source="x") == (HEADER, b"abc" * 1_000 + b"d")


def test_every_changed_byte_and_every_cut_is_noticed() -> None:
    """Also in magic, version and checksum: none is taken for another version."""
    data = made(b"some rows")
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        with pytest.raises(Corruption):
            tier_snapshot.read(bytes(changed), source="x")
        with pytest.raises(Corruption):
            tier_snapshot.read(data[:at], source="x")
    with pytest.raises(Corruption):
        tier_snapshot.read(data + b"x", source="x")


def test_a_later_version_is_refused_as_such() -> None:
    """A whole file with a higher version: upgrade, do not repair."""
    data = bytearray(made(b"some rows"))
    struct.pack_into("<II", data, 8, 2, 0)
    crc = google_crc32c.extend(google_crc32c.value(bytes(data[:36])), bytes(data[36:]))
    struct.pack_into("<I", data, 12, crc)
    with pytest.raises(UnsupportedVersion, match="snapshot-x is of version 2"):
        tier_snapshot.read(bytes(data), source="snapshot-x")


def test_a_state_beyond_the_limit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would read it."""
    monkeypatch.setattr(tier_snapshot, "STATE_BYTES_MAX", 10)
    with pytest.raises(Corruption, match="more than 10 bytes"):
        made(b"x" * 11)


@pytest.mark.parametrize(
    "key",
    [
        "streams/7/ranges/00000003/x.parquet",
        "streams/7/ranges/3/00000000000000001000-00000000000000002000-42.parquet",
        "streams/07/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet",
        "streams/7/ranges/00000003/00000000000000002000-00000000000000002000-42.parquet",
        "probe/x",
    ],
)
def test_a_key_that_no_program_makes_is_no_objects(key: str) -> None:
    """So a foreign file never counts."""
    assert parse_object_key(key) is None


def test_keys_go_there_and_back() -> None:
    """Also those of range indexes of more than eight digits."""
    place = ObjectKey(7, 123_456_789, 0, 5, 1 << 40)
    assert parse_object_key(object_key(*place)) == place
    assert parse_snapshot_key(snapshot_key("ab", 12)) == ("ab", "12")
    assert parse_snapshot_key("_pd/ab/12.snapshot") is None
