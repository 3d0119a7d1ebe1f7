"""`pdctl doctor s3` against buckets that lack one thing each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rangelog_proto.v1 import pd_pb2
from tests.corruption.lying_s3 import LyingS3
from tests.corruption.s3_faults import impatient

SMALL, PARTS = "small", "parts"


@pytest.fixture
def s3() -> Iterator[LyingS3]:
    """A good S3, and no patience."""
    with impatient(), LyingS3(1) as server:
        yield server


def examined(pdctl: Any, s3: LyingS3, code: int) -> dict[str, tuple[str, str]]:
    """State and detail of each check; the exit code must be this one."""
    import json

    result = pdctl("doctor", "s3", s3.url, "--size", "64KiB", "-o", "json")
    assert result.exit_code == code, result.output
    assert "test-secret" not in result.output
    return {each["check"]: (each["state"], each["detail"]) for each in json.loads(result.stdout)}


def test_a_good_bucket(pdctl: Any, s3: LyingS3) -> None:
    """Every check is a line, nothing is left behind, and the source of the credentials is named, not they."""
    result = pdctl("doctor", "s3", s3.url, "--size", "64KiB")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["credentials"].startswith("ok") and "from the environment" in lines["credentials"]
    assert "MB/s" in lines["speed"] and "ms" in lines["latency"]
    assert "test" not in lines["credentials"]
    assert not s3.objects and not s3.parts


@pytest.mark.parametrize(
    ("choose", "check", "needle"),
    [
        (lambda verb, key: "denied" if verb == "PUT" else "", "put", "denies access"),
        (lambda verb, key: "denied" if verb == "GET" and key else "", "get", "denies access"),
        (lambda verb, key: "denied" if verb == "GET" and not key else "", "list", "denies access"),
        (lambda verb, key: "denied" if verb == "DELETE" else "", "delete", "denies access"),
        (lambda verb, key: "denied" if verb == "POST" else "", "multipart", "denies access"),
        (lambda verb, key: "wrong bytes" if verb == "GET" and key else "", "get", "other bytes"),
        (lambda verb, key: "expired", "bucket", "expired"),
        (lambda verb, key: "wrong secret", "bucket", "does not accept the credentials"),
        (lambda verb, key: "no bucket", "bucket", "create it"),
        (lambda verb, key: "wrong region", "bucket", "region="),
    ],
)
def test_what_is_missing_is_named(
    pdctl: Any, s3: LyingS3, choose: Callable[[str, str], str], check: str, needle: str
) -> None:
    """Each right, token and place by its own check, which says what is wrong."""
    s3.choose = choose
    found = examined(pdctl, s3, 1)
    state, detail = found[check]
    assert state == "failed" and needle in detail, found


def test_conditions_that_are_ignored(pdctl: Any, s3: LyingS3) -> None:
    """A store that overwrites is found out by each of its three ways to do so."""
    s3.forgetful = True
    found = examined(pdctl, s3, 1)
    for check in ("conditional put", "replace", "multipart"):
        assert found[check][0] == "failed" and "ignored" in found[check][1], found
    assert found["get"][0] == "ok"


def test_no_credentials(pdctl: Any, s3: LyingS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is asked of the store."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = examined(pdctl, s3, 1)
    assert list(found) == ["credentials"] and "AWS_ACCESS_KEY_ID" in found["credentials"][1]
    assert s3.requests == 0


def test_a_clock_that_is_off(pdctl: Any, s3: LyingS3) -> None:
    """An hour between this machine and the store is told before S3 refuses for it."""
    s3.clock_off_s = 3_600
    found = examined(pdctl, s3, 1)
    assert found["clock"][0] == "failed" and "behind" in found["clock"][1]
    assert found["put"][0] == "ok"


def test_nobody_listens(pdctl: Any, s3: LyingS3) -> None:
    """The endpoint's check says so, and nothing else is tried."""
    result = pdctl("doctor", "s3", "s3://bucket?endpoint=http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("endpoint") and "check the endpoint" in result.stdout


@pytest.mark.parametrize("url", ["file:///d", "s3://", "nonsense"])
def test_a_bad_url(pdctl: Any, url: str) -> None:
    """Only a bucket is examined."""
    result = pdctl("doctor", "s3", url)
    assert result.exit_code == 1 and result.stdout.startswith("tier URL") and "failed" in result.stdout


def test_the_clusters_own_tier(pd: Any, pdctl: Any, s3: LyingS3) -> None:
    """Without a URL the cluster is asked for it."""
    pd.answers["describe_cluster"] = pd_pb2.DescribeClusterResponse(tier_url=s3.url)
    assert pdctl("doctor", "s3", "--size", "0").exit_code == 0
    pd.answers["describe_cluster"] = pd_pb2.DescribeClusterResponse()
    assert "no tier" in pdctl.fails(5, "doctor", "s3")
