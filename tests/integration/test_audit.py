"""The audit log on real processes: every change is in it, once and in order, whatever dies; what is tampered with is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.certs.authority import Authority
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError, RightMissing, RoleForbids
from tests.integration.helpers.pdctl_command import Pdctl
from tests.security.rights import pdctl as pdctl_with_tls
from tests.support.certificates import TestCertificates
from tests.support.leader import leader_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def entries(pdctl: Pdctl, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pdctl.json("audit", "show", *arguments)
    return found


def outcomes(pdctl: Pdctl) -> list[str]:
    """Of all entries: "unknown" until the placement driver has recorded how a call ended, soon after its answer."""
    return [each["outcome"] for each in entries(pdctl)]


def check_exports(pdctl: Pdctl, tmp_path: Path) -> None:
    """An export is intact, also as an earlier part of the log; whatever is done to it is found."""
    path = tmp_path / "audit.jsonl"
    assert pdctl("audit", "export", str(path)).returncode == 0
    lines = path.read_bytes().splitlines(keepends=True)
    pdctl.ok("stream", "create", "later")
    assert pdctl.ok("audit", "verify", str(path)).startswith(f"intact: entries 1 to {len(lines)},")
    for number, (tampered, said) in enumerate(
        (
            ([*lines[:2], lines[2].replace(b"orders", b"0rders"), *lines[3:]], "was changed"),
            ([*lines[:2], *lines[3:]], "entries 3 to 3 are missing"),
            ([lines[0], lines[2], lines[1], *lines[3:]], "are missing"),
            ([*lines[:3], lines[2], *lines[3:]], "comes again"),
            ([*lines[:-1], lines[-1].replace(b'"time_ms":1', b'"time_ms":2')], "was changed"),
            ([*lines, b"{}\n"], "no entry"),
            ([], "no entries"),
        )
    ):
        bad = tmp_path / f"bad-{number}.jsonl"
        bad.write_bytes(b"".join(tampered))
        assert said in pdctl.fails(1, "audit", "verify", str(bad)), said
        assert json.loads(pdctl("audit", "verify", str(bad), "-o", "json").stdout)["intact"] is False
    status = pdctl.json("audit", "status")
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:-1]))
    given = ("--sequence", str(status["last_sequence"]), "--hash", status["last_hash"])
    assert "the log was cut" in pdctl.fails(1, "audit", "verify", str(cut), *given)


def test_changes_are_recorded_and_tampering_is_found(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    """By pdctl alone: nothing before it is on, each change once with its outcome, and reads not at all."""
    cluster = cluster_factory(pds=1, range_servers=3)
    pdctl = Pdctl(cluster)
    assert "never enabled" in pdctl.fails(5, "audit", "show")
    pdctl.ok("stream", "create", "before")
    assert pdctl.ok("audit", "enable") == "the audit log is on\n"
    pdctl.ok("stream", "create", "orders")
    pdctl.ok("stream", "list")
    pdctl.fails(5, "stream", "create", "orders")
    pdctl.ok("stream", "append", "orders", input=b"a record")
    pdctl.ok("stream", "update", "orders", "--retention", "30d")
    pdctl.ok("stream", "delete", "orders", "--yes")
    eventually(lambda: "unknown" not in outcomes(pdctl), "an outcome is not recorded", 20)
    found = entries(pdctl)
    assert [(each["call"], each["resource"], each["outcome"]) for each in found] == [
        ("SetAudit", "cluster", "OK"),
        ("CreateStream", "stream orders", "OK"),
        ("CreateStream", "stream orders", "STREAM_EXISTS"),
        ("UpdateStream", "stream orders", "OK"),
        ("DeleteStream", "stream orders", "OK"),
    ]
    assert "retention_ms" in found[3]["detail"] and "exists already" in found[2]["error"]
    assert {each["peer"] for each in found} == {"127.0.0.1"}
    assert [each["outcome"] for each in entries(pdctl, "--call", "DeleteStream", "--since", "1h")] == ["OK"]
    eventually(lambda: pdctl.json("audit", "status")["waiting"] == 0, "entries wait for the stream", 20)

    assert "_audit" not in pdctl.ok("stream", "list"), "it is nobody's stream"
    for verb, code in (("delete", 2), ("update", 5), ("trim", 5)):
        more = {"trim": ("--to", "1", "--yes"), "delete": ("--yes",), "update": ("--retention", "1d")}[verb]
        assert "_audit" in pdctl.fails(code, "stream", verb, "_audit", *more)
    assert pdctl.ok("audit", "verify").startswith("intact: entries 1 to ")

    check_exports(pdctl, tmp_path)
    pdctl.ok("audit", "disable", "--yes")
    pdctl.ok("stream", "create", "unseen")
    assert entries(pdctl)[-1]["detail"] == "disabled"

    pdctl.ok("audit", "enable")
    asyncio.run(forge(cluster))
    pdctl.ok("stream", "create", "after-it")
    eventually(lambda: pdctl.json("audit", "status")["waiting"] == 0, "entries wait for the stream", 30)
    assert pdctl.json("audit", "status")["problem"] == ""
    assert "not JSON" in pdctl.fails(1, "audit", "verify")


async def forge(cluster: Cluster) -> None:
    """Write to the stream as nobody does who uses the SDK: without certificates nothing stops that."""
    async with rangelog.connect(cluster.connect_string) as client, client.internal.writer("_audit") as writer:
        await writer.append(b"nothing happened")


@pytest.mark.long
async def test_nothing_is_lost_or_doubled_when_leaders_die(cluster_factory: Callable[..., Cluster]) -> None:
    """Streams are created while the leader is killed again and again: each one that exists has one entry that began it."""
    cluster = await asyncio.to_thread(lambda: cluster_factory(pds=3, range_servers=3, tier_url=""))
    pdctl = Pdctl(cluster)
    await asyncio.to_thread(pdctl.ok, "audit", "enable")
    stop, made = asyncio.Event(), 0

    async def create() -> None:
        nonlocal made
        async with await rangelog.connect(cluster.connect_string) as client:
            while not stop.is_set():
                try:
                    await client.create_stream(f"s{made}", timeout_s=20)
                except RangelogError as error:
                    assert error.outcome_unknown or error.code == "STREAM_EXISTS", error
                made += 1

    creating = asyncio.create_task(create())
    for round_ in range(1, 4):
        await asyncio.to_thread(eventually, lambda wanted=100 * round_ - 50: made >= wanted, "nothing is created")
        leader = await asyncio.to_thread(leader_of, cluster)
        await asyncio.to_thread(cluster.kill, leader)
        await asyncio.to_thread(eventually, lambda wanted=100 * round_: made >= wanted, "nothing is created")
        await asyncio.to_thread(cluster.start_member, leader)
    stop.set()
    await creating
    await asyncio.to_thread(eventually, lambda: pdctl.json("audit", "status")["waiting"] == 0, "entries wait")
    assert (await asyncio.to_thread(pdctl.ok, "audit", "verify")).startswith("intact")
    streams = {each["name"] for each in pdctl.json("stream", "list")}
    begun = {
        each["resource"].removeprefix("stream ")
        for each in entries(pdctl, "--call", "CreateStream", "--limit", "100000")
    }
    assert len(streams) > 20
    assert streams <= begun


@pytest.mark.long
async def test_principals_and_refusals_are_named(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    """With certificates: who did it, and who was refused, once a minute however often; the log is written over TLS."""
    cluster = await asyncio.to_thread(lambda: cluster_factory(pds=1, range_servers=3, tls=True, tier_url=""))
    certificates = TestCertificates(tmp_path, Authority.open(cluster.directory / "certs"))

    def run(*arguments: str) -> str:
        done = pdctl_with_tls(cluster, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    await asyncio.to_thread(run, "audit", "enable")
    await asyncio.to_thread(run, "acl", "enforce", "on", "--yes")
    async with await rangelog.connect(cluster.connect_string, tls=certificates.tls("client", "eve")) as client:
        for _ in range(30):
            with pytest.raises(RightMissing):
                await client.create_stream("hers")
    async with await rangelog.connect(cluster.connect_string, tls=certificates.tls("admin", "mallory")) as admin:
        with pytest.raises(RoleForbids, match="may not write to the audit log"):
            await admin.internal.writer("_audit").open()
    await asyncio.to_thread(run, "stream", "create", "ours")

    def written() -> bool:
        known = all(each["outcome"] != "unknown" for each in json.loads(run("audit", "show", "-o", "json")))
        return known and bool(json.loads(run("audit", "status", "-o", "json"))["waiting"] == 0)

    await asyncio.to_thread(eventually, written, "entries wait for the stream", 30)
    found = json.loads(await asyncio.to_thread(run, "audit", "show", "-o", "json"))
    refused = [each for each in found if each["principal"] == "client:eve"]
    assert [(each["call"], each["outcome"]) for each in refused] == [("CreateStream", "RIGHT_MISSING")]
    (made,) = [each for each in found if each["resource"] == "stream ours"]
    assert made["principal"].startswith("admin:") and made["outcome"] == "OK"
    assert "intact" in await asyncio.to_thread(run, "audit", "verify")
