"""A tier that a new `rangelog local` cannot use: said at its start, in one sentence, before anything is made."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangelog_cli.local.tier_check import check_tier
from rangelog_cli.main import run
from rangelog_core.errors import ConfigInvalid, RangelogError
from tests.corruption.lying_s3 import LyingS3
from tests.corruption.s3_faults import impatient


@pytest.fixture
def s3() -> Iterator[LyingS3]:
    """A good S3, and no patience."""
    with impatient(), LyingS3(1) as server:
        yield server


def test_a_good_tier(s3: LyingS3, tmp_path: Path) -> None:
    """Nothing is left in a bucket; a directory is made."""
    check_tier(s3.url)
    check_tier(f"file://{tmp_path}/new/tier")
    assert not s3.objects and not s3.parts and (tmp_path / "new" / "tier").is_dir()


@pytest.mark.parametrize(
    ("fault", "verbs", "needle"),
    [
        ("no bucket", ("PUT", "GET", "HEAD"), "create it, or add create=true"),
        ("wrong secret", ("PUT", "GET", "HEAD"), "does not accept the credentials"),
        ("expired", ("PUT", "GET", "HEAD"), "expired"),
        ("denied", ("PUT",), "denies access"),
    ],
)
def test_a_bucket_that_cannot_be_used(s3: LyingS3, fault: str, verbs: tuple[str, ...], needle: str) -> None:
    """What is wrong is named; no credential is."""
    s3.choose = lambda verb, key: fault if verb in verbs else ""
    with pytest.raises(ConfigInvalid) as told:
        check_tier(s3.url)
    assert needle in told.value.message and "nothing was started" in told.value.message
    assert "test-secret" not in told.value.message


def test_a_store_that_ignores_conditions(s3: LyingS3) -> None:
    """Objects could be overwritten there."""
    s3.forgetful = True
    with pytest.raises(ConfigInvalid, match="If-None-Match is ignored"):
        check_tier(s3.url)


def test_no_credentials_and_nobody_there(s3: LyingS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says which it is."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ConfigInvalid, match=r"cannot be reached|refused"):
            check_tier(f"s3://bucket/t?endpoint=http://127.0.0.1:{taken.getsockname()[1]}")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigInvalid, match="AWS_ACCESS_KEY_ID"):
        check_tier(s3.url)


@pytest.mark.parametrize(
    ("url", "needle"),
    [
        ("s3://bb", "bad bucket name 'bb': 3 to 63"),
        ("s3://Bucket/logs", "bad bucket name 'Bucket'"),
        ("s3://a..b/logs", "bad bucket name"),
        ("ftp://x", "bad tier URL"),
        ("file://relative/path", "bad tier URL"),
    ],
)
def test_a_url_that_is_none(
    tmp_path: Path, url: str, needle: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with the sentence, and no directory is made: the next start may have another tier."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["local", "--data-dir", str(tmp_path / "d"), "--no-context", "--tier", url, "--port", "0"]) != 0
    said = capsys.readouterr().err
    assert said.startswith("rangelog: ") and needle in said and said.count("\n") == 1
    assert not (tmp_path / "d").exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """As where a file stands in its way."""
    (tmp_path / "file").write_text("")
    with pytest.raises((RangelogError, OSError)) as told:
        check_tier(f"file://{tmp_path}/file/tier")
    assert str(tmp_path / "file") in str(told.value) or os.strerror(20) in str(told.value)
