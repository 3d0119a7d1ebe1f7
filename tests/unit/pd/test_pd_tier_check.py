"""The leader's check of the tier."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rangelog_core.errors import ConfigInvalid, RangelogError, Unavailable
from rangelog_pd.tier_check import check_tier, leader_watch
from tests.corruption.lying_s3 import LyingS3
from tests.corruption.s3_faults import impatient


def test_a_directory_is_checked_where_it_is(tmp_path: Path) -> None:
    """One that is not on this machine is not the placement driver's matter, and is not made."""
    check_tier(f"file://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "tier").mkdir()
    check_tier(f"file://{tmp_path}/tier")
    assert not [path for path in (tmp_path / "tier").rglob("*") if path.is_file()]
    (tmp_path / "tier" / "probe").rmdir()
    (tmp_path / "tier" / "probe").write_bytes(b"in the way")
    with pytest.raises(Unavailable):
        check_tier(f"file://{tmp_path}/tier")


def test_a_placement_driver_without_boto3_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `tier` is not part of the extra `pd`."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "rangelog_tier.s3_store", raising=False)
    check_tier("s3://bucket")


def test_wrong_bytes_and_lost_objects_are_found() -> None:
    """What is read back is compared; a store that lost it is no tier either."""
    with impatient(), LyingS3(1) as s3:
        check_tier(s3.url)
        assert not s3.objects
        for fault in ("wrong bytes", "stale"):
            s3.choose = lambda verb, key, fault=fault: fault if verb == "GET" else ""  # type: ignore[misc]
            with pytest.raises(Unavailable, match="S3 server"):
                check_tier(s3.url)


def test_a_bad_url_is_told() -> None:
    """A URL that cannot be one is the tier's error, not the end of the placement driver."""
    with pytest.raises(ConfigInvalid):
        check_tier("s4://bucket")


async def test_only_the_leader_checks(tmp_path: Path) -> None:
    """A follower has no error of its own; the check runs on a thread."""
    leads = False
    watch = leader_watch(lambda: "s4://bucket", lambda: leads)
    await watch._check()
    leads = True
    with pytest.raises(RangelogError):
        await watch._check()
    (tmp_path / "tier").mkdir()
    await leader_watch(lambda: f"file://{tmp_path}/tier", lambda: True)._check()
