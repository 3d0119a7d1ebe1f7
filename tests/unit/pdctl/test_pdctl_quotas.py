"""`pdctl quota`: what is asked for, what is printed, and what is refused before anything is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed
from rangelog_proto.v1 import quotas_pb2 as pb


def test_set(pd: Any, pdctl: Any) -> None:
    """Rates that are not given are not named; `none` lifts a limit; a client may be named with and without its role."""
    pd.answers["set_quota"] = lambda request: pb.SetQuotaResponse(
        quota=pb.Quota(
            principal=request.principal, prefix=request.prefix, append_bytes_per_s=request.append_bytes_per_s
        )
    )
    told = pdctl("quota", "set", "--principal", "alice", "--append-bytes-per-s", "10MB").stdout
    asked = pd.requests[-1][1]
    assert asked.principal == "client:alice" and asked.append_bytes_per_s == 10_000_000
    assert not asked.HasField("read_bytes_per_s") and not asked.HasField("calls_per_s")
    assert "client:alice" in told and "9.5 MiB/s" in told
    pdctl("quota", "set", "--prefix", "orders/", "--read-bytes-per-s", "1MiB/s", "--append-bytes-per-s", "none")
    asked = pd.requests[-1][1]
    assert (asked.prefix, asked.read_bytes_per_s, asked.append_bytes_per_s) == ("orders/", 1 << 20, 0)
    assert asked.HasField("append_bytes_per_s")
    pdctl("quota", "set", "--principal", "*", "--calls-per-s", "100")
    assert pd.requests[-1][1].principal == "*" and pd.requests[-1][1].calls_per_s == 100
    pdctl("quota", "set", "--principal", "client:sso:ann@example.org", "--calls-per-s", "none")
    assert pd.requests[-1][1].principal == "client:sso:ann@example.org" and pd.requests[-1][1].HasField("calls_per_s")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--principal", "a"), "give a rate"),
        (("--calls-per-s", "5"), "--principal or --prefix"),
        (("--principal", "a", "--prefix", "b", "--calls-per-s", "5"), "one of them"),
        (("--prefix", "", "--append-bytes-per-s", "1MB"), "--principal or --prefix"),
        (("--prefix", "a/b/c", "--append-bytes-per-s", "1MB"), "begins no name"),
        (("--principal", "a", "--append-bytes-per-s", "-1"), "64MiB or 1GB"),
        (("--principal", "a", "--append-bytes-per-s", "0"), "let nothing through"),
        (("--principal", "a", "--append-bytes-per-s", "10 bananas"), "64MiB or 1GB"),
        (("--principal", "a", "--append-bytes-per-s", "99999999999TB"), "64MiB or 1GB"),
        (("--principal", "a", "--calls-per-s", "0"), "for example 100"),
        (("--principal", "a", "--calls-per-s", "1.5"), "for example 100"),
        (("--principal", "a", "--calls-per-s", "9" * 30), "for example 100"),
        (("--principal", "a b", "--calls-per-s", "5"), "client"),
        (("--principal", "admin:x", "--calls-per-s", "5"), "quotas are for clients: name client:NAME"),
    ],
)
def test_what_is_no_quota(pd: Any, pdctl: Any, arguments: tuple[str, ...], told: str) -> None:
    """Refused with what to write."""
    assert told in pdctl.fails(2, "quota", "set", *arguments)
    assert pd.requests == []


def test_list_show_and_remove(pd: Any, pdctl: Any) -> None:
    """All of them, one of them, and none."""
    rows = [pb.Quota(principal="client:a", calls_per_s=7), pb.Quota(prefix="orders/", append_bytes_per_s=1 << 20)]
    pd.answers["list_quotas"] = pb.ListQuotasResponse(quotas=rows, version=2)
    listed = json.loads(pdctl("quota", "list", "-o", "json").stdout)
    assert [(each["principal"], each["prefix"]) for each in listed] == [("client:a", ""), ("", "orders/")]
    assert "7/s" in pdctl("quota", "show", "--principal", "a").stdout
    assert "1.0 MiB/s" in pdctl("quota", "show", "--prefix", "orders/").stdout
    assert "pdctl quota list" in pdctl.fails(3, "quota", "show", "--principal", "b")
    pd.answers["remove_quota"] = pb.RemoveQuotaResponse(quota=rows[0])
    pdctl("quota", "remove", "--principal", "a")
    assert pd.requests[-1][1].principal == "client:a"
    pd.answers["remove_quota"] = PreconditionFailed("has no quota of its own")
    pdctl.fails(5, "quota", "remove", "--prefix", "x")
    pd.answers["list_quotas"] = pb.ListQuotasResponse()
    assert "nobody is held off" in pdctl("quota", "list").output
