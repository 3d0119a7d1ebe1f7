"""Files that are encrypted as a whole: a round trip at every edge of a piece, and every way to change one is found."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from rangelog_core.errors import Corruption, EncryptionKeyMissing
from rangelog_tier import encrypted_file
from rangelog_tier.encrypted_file import MAGIC, decrypt, encrypt_file
from rangelog_tier.encryption_keys import KeyDirectory

PIECE, TAG = 64, 16


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyDirectory:
    """One key; pieces are small."""
    monkeypatch.setattr(encrypted_file, "PIECE_BYTES", PIECE)
    made = KeyDirectory(str(tmp_path / "keys"))
    made.make_key("k1")
    return made


def encrypted(data: bytes, keys: KeyDirectory) -> bytes:
    """The encrypted file of some bytes."""
    target = io.BytesIO()
    assert encrypt_file(io.BytesIO(data), target, keys) == len(target.getvalue())
    return target.getvalue()


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 7])
def test_round_trip(keys: KeyDirectory, size: int) -> None:
    """No part of it is in clear, and no two files of one content are alike."""
    data = os.urandom(size)
    made = encrypted(data, keys)
    assert decrypt(made, keys, source="f") == data
    assert size < 8 or data[:8] not in made
    assert made != encrypted(data, keys)


def test_every_change_is_found(keys: KeyDirectory) -> None:
    """A bit of any byte, any cut, more bytes, pieces in another order or of another file: never other content."""
    data = os.urandom(3 * PIECE)
    made = encrypted(data, keys)
    for position in range(len(MAGIC), len(made)):
        changed = bytearray(made)
        changed[position] ^= 1
        with pytest.raises((Corruption, EncryptionKeyMissing)):  # the id, or what tells keys apart
            decrypt(bytes(changed), keys, source="f")
    for length in range(len(MAGIC), len(made)):
        with pytest.raises(Corruption):
            decrypt(made[:length], keys, source="f")
    body, step = len(made) - 3 * (PIECE + TAG), PIECE + TAG
    other = encrypted(os.urandom(3 * PIECE), keys)
    for wrong in (
        made + b"\0",
        made[: body + step] + made[body + 2 * step :],
        made[:body] + made[body + step : body + 2 * step] + made[body : body + step] + made[body + 2 * step :],
        made[: body + step] + other[body + step :],
    ):
        with pytest.raises(Corruption, match="f: "):
            decrypt(wrong, keys, source="f")


def test_keys(keys: KeyDirectory, tmp_path: Path) -> None:
    """Without keys, and without the one; what is in clear needs none."""
    made = encrypted(b"secret", keys)
    with pytest.raises(
        EncryptionKeyMissing, match="the snapshot 5 is encrypted with key 'k1', and this program has no keys"
    ):
        decrypt(made, None, source="the snapshot 5")
    other = KeyDirectory(str(tmp_path / "other"))
    other.make_key("k2")
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):
        decrypt(made, other, source="f")
    assert decrypt(b"RLTSNAP1 in clear", None, source="f") == b"RLTSNAP1 in clear"
