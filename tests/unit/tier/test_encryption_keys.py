"""Keys that wrap data keys: a round trip, and one typed error for each way in which a key is not the right one."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    Corruption,
    EncryptionKeyMissing,
    InvalidArgument,
    Unavailable,
)
from rangelog_tier import kms_keys
from rangelog_tier.encryption_keys import KeyDirectory, KeyProvider, key_provider, keys_of_environment
from rangelog_tier.kms_keys import KmsKeys

DATA_KEY = bytes(range(32))


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    """A directory with one key."""
    directory = KeyDirectory(str(tmp_path / "keys"))
    directory.make_key("2026-01")
    return directory


def put(keys: KeyDirectory, key_id: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file of a key, as it is."""
    path = Path(keys.path) / f"{key_id}.key"
    path.write_bytes(data)
    path.chmod(mode)


def test_round_trip_and_the_newest_key(keys: KeyDirectory) -> None:
    """The id that sorts last is the current one at once; what an earlier key wrapped goes on being read."""
    assert isinstance(keys, KeyProvider)
    assert keys.current() == "2026-01"
    wrapped = keys.wrap("2026-01", DATA_KEY)
    assert DATA_KEY not in wrapped and wrapped != keys.wrap("2026-01", DATA_KEY)
    keys.make_key("2026-02")
    put(keys, ".hidden", b"")
    (Path(keys.path) / "zzz.key.bak").write_bytes(b"")
    assert keys.key_ids() == ["2026-01", "2026-02"] and keys.current() == "2026-02"
    assert keys.unwrap("2026-01", wrapped) == DATA_KEY
    assert keys.unwrap("2026-02", keys.wrap("2026-02", DATA_KEY)) == DATA_KEY


def test_a_current_key_may_be_named(keys: KeyDirectory) -> None:
    """Then it does not matter how ids sort; a name of no key is an error, and no other key is used in its place."""
    keys.make_key("2026-02")
    keys.make_current("2026-01")
    assert keys.current() == "2026-01" and keys.key_ids() == ["2026-01", "2026-02"]
    with pytest.raises(EncryptionKeyMissing, match="'none' cannot be read"):
        keys.make_current("none")
    assert keys.current() == "2026-01"
    (Path(keys.path) / "2026-01.key").unlink()
    with pytest.raises(EncryptionKeyMissing, match="'2026-01' cannot be read"):
        keys.wrap(keys.current(), DATA_KEY)
    for bad in (b"", b"../x", b"\xff", b"two\nlines"):
        (Path(keys.path) / "current").write_bytes(bad)
        with pytest.raises(EncryptionKeyMissing, match="does not name a key"):
            keys.current()


def test_every_changed_byte_is_corruption_or_names_the_key(keys: KeyDirectory) -> None:
    """Never another data key. The first eight bytes tell keys apart: with others it looks like another key's."""
    wrapped = keys.wrap("2026-01", DATA_KEY)
    for position in range(len(wrapped)):
        changed = bytearray(wrapped)
        changed[position] ^= 1
        with pytest.raises(EncryptionKeyMissing if position < 8 else Corruption, match="'2026-01'"):
            keys.unwrap("2026-01", bytes(changed))
    for length in range(len(wrapped)):
        with pytest.raises(Corruption):
            keys.unwrap("2026-01", wrapped[:length])
    with pytest.raises(Corruption):
        keys.unwrap("2026-01", wrapped + bytes(10_000))


def test_a_wrapped_key_is_bound_to_its_id(keys: KeyDirectory) -> None:
    """The same key under another name does not unwrap it: what is told of the key in use is true."""
    wrapped = keys.wrap("2026-01", DATA_KEY)
    put(keys, "other", (Path(keys.path) / "2026-01.key").read_bytes())
    with pytest.raises(Corruption):
        keys.unwrap("other", wrapped)


def test_another_key_under_the_id(keys: KeyDirectory) -> None:
    """Is not called damage: the right key may come back."""
    wrapped = keys.wrap("2026-01", DATA_KEY)
    put(keys, "2026-01", os.urandom(32))
    with pytest.raises(EncryptionKeyMissing, match=r"'2026-01' in .* is not the key that was used"):
        keys.unwrap("2026-01", wrapped)


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o620, True)]
)
def test_a_key_that_others_may_read_is_refused(keys: KeyDirectory, mode: int, refused: bool) -> None:
    """With the command that helps."""
    put(keys, "2026-01", bytes(32), mode)
    if refused:
        with pytest.raises(EncryptionKeyMissing, match="'2026-01' is open to other users: chmod 600"):
            keys.wrap("2026-01", DATA_KEY)
    else:
        assert keys.unwrap("2026-01", keys.wrap("2026-01", DATA_KEY)) == DATA_KEY


@pytest.mark.parametrize("size", [0, 16, 31, 33, 10_000])
def test_a_key_of_another_size(keys: KeyDirectory, size: int) -> None:
    """Half a copy is not a key."""
    put(keys, "2026-01", bytes(size))
    with pytest.raises(EncryptionKeyMissing, match="not a file of 32 bytes"):
        keys.wrap("2026-01", DATA_KEY)


def test_what_is_not_there(keys: KeyDirectory, tmp_path: Path) -> None:
    """A directory, a key, an id that leads elsewhere, a pipe that would stop its reader."""
    with pytest.raises(EncryptionKeyMissing, match="cannot be read: No such file"):
        KeyDirectory(str(tmp_path / "none")).current()
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncryptionKeyMissing, match="pdctl encryption new-key"):
        KeyDirectory(str(tmp_path / "empty")).current()
    with pytest.raises(EncryptionKeyMissing, match="'gone'"):
        keys.unwrap("gone", keys.wrap("2026-01", DATA_KEY))
    put(KeyDirectory(str(tmp_path)), "outside", bytes(32))
    with pytest.raises(EncryptionKeyMissing):
        keys.wrap("../outside", DATA_KEY)
    os.mkfifo(Path(keys.path) / "pipe.key", 0o600)
    with pytest.raises(EncryptionKeyMissing, match="not a file of 32 bytes"):
        keys.wrap("pipe", DATA_KEY)


def test_a_made_key(keys: KeyDirectory) -> None:
    """Is random, its owner's alone, and never takes the place of another."""
    path = keys.make_key("b")
    assert path.stat().st_mode & 0o777 == 0o600 and len(path.read_bytes()) == 32
    before = path.read_bytes()
    with pytest.raises(InvalidArgument, match="there already"):
        keys.make_key("b")
    assert path.read_bytes() == before != (Path(keys.path) / "2026-01.key").read_bytes()
    assert sorted(os.listdir(keys.path)) == ["2026-01.key", "b.key"]
    for bad in ("", ".a", "a/b", "a" * 200, "ä"):
        with pytest.raises(InvalidArgument, match="the id of a key"):
            keys.make_key(bad)


def test_settings(tmp_path: Path) -> None:
    """Two settings, of which one counts."""
    assert key_provider("", None) is None and key_provider("/k", "") == KeyDirectory("/k")
    assert key_provider(None, "alias/logs") == KmsKeys("alias/logs")
    with pytest.raises(ConfigInvalid, match="one of the two"):
        key_provider("/k", "alias/logs")
    assert keys_of_environment({}) is None
    assert keys_of_environment({"RANGELOG_ENCRYPTION_KEYS_DIR": "/k"}) == KeyDirectory("/k")
    assert keys_of_environment({"RANGELOG_ENCRYPTION_KMS_KEY_ID": "k"}) == KmsKeys("k")


# ---- AWS KMS


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A client of a key service in this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    kms_keys._client.cache_clear()
    with mock_aws():
        yield boto3.client("kms")
    kms_keys._client.cache_clear()


def test_keys_of_aws_kms(kms) -> None:  # type: ignore[no-untyped-def]
    """A round trip; a key by alias goes on unwrapping after the alias was pointed at another key."""
    first, second = (kms.create_key()["KeyMetadata"]["KeyId"] for _ in range(2))
    keys = KmsKeys(first)
    wrapped = keys.wrap(keys.current(), DATA_KEY)
    assert DATA_KEY not in wrapped and keys.unwrap(first, wrapped) == DATA_KEY
    kms.create_alias(AliasName="alias/logs", TargetKeyId=first)
    alias = KmsKeys("alias/logs")
    wrapped = alias.wrap(alias.current(), DATA_KEY)
    kms.update_alias(AliasName="alias/logs", TargetKeyId=second)
    assert alias.unwrap("alias/logs", wrapped) == DATA_KEY


def test_what_aws_kms_refuses(kms) -> None:  # type: ignore[no-untyped-def]
    """A key that is not there, bytes that were changed, a right that is missing, a service that is away."""
    key_id = kms.create_key()["KeyMetadata"]["KeyId"]
    keys = KmsKeys(key_id)
    wrapped = keys.wrap(key_id, DATA_KEY)
    with pytest.raises(EncryptionKeyMissing, match="no encryption key '0000"):
        keys.wrap("00000000-0000-0000-0000-000000000000", DATA_KEY)
    with pytest.raises(Corruption):
        keys.unwrap(key_id, wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    for code, expected in (("AccessDeniedException", AccessDenied), ("KMSInternalException", Unavailable)):
        assert type(kms_keys._error_of(key_id, code)) is expected


def test_aws_kms_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unavailable: it is tried again. Without a region it cannot be asked at all."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    kms_keys._client.cache_clear()
    with pytest.raises(Unavailable, match="cannot be asked for encryption key 'k'"):
        KmsKeys("k").wrap("k", DATA_KEY)
    kms_keys._client.cache_clear()
