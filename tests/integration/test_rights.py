"""Rights in a cluster of processes: all cells, and clients at work while rights are given and taken, and a leader dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import rangelog
from rangelog.errors import RangelogError, RightMissing
from rangelog_cli.certs.authority import Authority
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.tls import TlsConfig
from rangelog_core.stream_config import StreamConfig
from tests.security.matrix import Outcome
from tests.security.rights import HEARTBEATS_S, check_rights, pdctl
from tests.support.certificates import TestCertificates
from tests.support.leader import leader_of
from tests.support.waiting import until_arrived

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.long]

ClusterFactory = Callable[..., Cluster]


def admin(cluster: Cluster, *arguments: str) -> str:
    done = pdctl(cluster, "acl", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def clients(cluster: Cluster, directory: Path) -> Callable[[str], TlsConfig]:
    certificates = TestCertificates(directory, Authority.open(cluster.directory / "certs"))
    return lambda name: certificates.tls("client", name)


MAY_NOT_READ = "client:w may not read stream 'jobs-1'"


async def until_refused(call: Callable[[], Awaitable[object]], told: str) -> None:
    """Repeat a call, which must be refused soon."""
    with pytest.raises(RightMissing, match=told):
        async with asyncio.timeout(HEARTBEATS_S + 30):
            while True:
                await call()


async def appended(client: rangelog.Client) -> bool:
    """Whether a record can be appended to stream `s`: servers may not know yet that rights are not enforced any more."""
    try:
        async with client.writer("s") as writer:
            await writer.append(b"3")
    except RightMissing:
        return False
    return True


async def test_every_client_may_do_what_its_rules_give_and_nothing_else(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """Principal, verb, resource and port: see tests/security/rights.py."""
    cluster = cluster_factory(range_servers=3, brokers=2, tls=True, doors=("http",))
    certificates = TestCertificates(tmp_path, Authority.open(cluster.directory / "certs"))
    outcome = Outcome()
    await check_rights(cluster, certificates, outcome)
    assert not outcome.wrong and outcome.cells > 500


async def test_rights_are_taken_from_those_at_work_and_outlive_leaders(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """A writer and a follower go on through the death of the leader, and end soon after their right is revoked."""
    cluster = cluster_factory(range_servers=3, tls=True)
    tls = clients(cluster, tmp_path)
    admin(cluster, "grant", "client:w", "append,admin", "stream", "jobs-*")
    admin(cluster, "grant", "client:r", "read", "stream", "jobs-1")
    admin(cluster, "enforce", "on", "--yes")
    async with (
        await rangelog.connect(cluster.connect_string, tls=tls("w")) as writing,
        await rangelog.connect(cluster.connect_string, tls=tls("r")) as reading,
    ):
        # Not tiered: what is in the tier is read with the store's credentials, and a slow replica would have the range sealed.
        await writing.create_stream("jobs-1", StreamConfig(tiered=False, hot_retention_seconds=float("inf")))
        with pytest.raises(
            RightMissing, match=r"client:w may not admin stream 'other'.*pdctl acl grant client:w admin"
        ):
            await writing.create_stream("other")
        with pytest.raises(RightMissing, match="append or seal stream 'jobs-1'"):
            async with reading.writer("jobs-1") as writer:
                await writer.append(b"x")
        assert [each.name async for each in reading.list_streams()] == ["jobs-1"]

        seen: list[bytes] = []
        failed: list[RangelogError] = []

        async def follow() -> None:
            try:
                async for record in reading.reader("jobs-1", start="earliest", follow=True):
                    seen.append(record.value)
            except RangelogError as error:
                failed.append(error)

        following = asyncio.create_task(follow())
        writer = await writing.writer("jobs-1").__aenter__()
        for number in range(300):
            await writer.append(b"%d" % number)
            if number == 100:
                for _ in range(
                    10
                ):  # each server has heard by heartbeat that rights are enforced, before the leader dies
                    await until_refused(lambda: anext(aiter(writing.reader("jobs-1", start="earliest"))), MAY_NOT_READ)
                await asyncio.to_thread(cluster.kill, await asyncio.to_thread(leader_of, cluster))
        await until_arrived(lambda: seen, [b"%d" % number for number in range(300)], "everything is read")
        assert not failed
        with pytest.raises(RightMissing, match=MAY_NOT_READ):
            [record async for record in writing.reader("jobs-1", start="earliest", follow=False)]

        await asyncio.to_thread(admin, cluster, "revoke", "client:r", "read", "stream", "jobs-1")
        await asyncio.wait_for(following, 20)
        assert isinstance(failed[0], RightMissing), failed

        await asyncio.to_thread(admin, cluster, "revoke", "client:w", "append", "stream", "jobs-*")
        await until_refused(lambda: writer.append(b"more"), "client:w may not append")


async def test_rules_count_only_once_they_are_enforced(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """A cluster goes on as before until then; off again, everybody may do everything; without TLS it is refused."""
    cluster = cluster_factory(pds=1, range_servers=3, tls=True)
    tls = clients(cluster, tmp_path)
    assert "may not append" in pdctl(cluster, "acl", "test", "client:w", "append", "stream", "s").stdout.decode()
    async with await rangelog.connect(cluster.connect_string, tls=tls("w")) as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            await writer.append(b"1")
            admin(cluster, "enforce", "on", "--yes")
            await until_refused(lambda: writer.append(b"2"), "client:w may not append")
        with pytest.raises(RightMissing):
            await client.describe_stream("s")
        admin(cluster, "enforce", "off", "--yes")
        async with asyncio.timeout(20):
            while not await appended(client):
                pass
    refused = pdctl(cluster, "acl", "list", tls=tls("w"))
    assert refused.returncode == 1 and b"take a certificate of role admin" in refused.stderr
    for bad in (("grant", "admin:x", "read", "stream", "s"), ("grant", "client:x", "fly", "stream", "s")):
        done = pdctl(cluster, "acl", *bad)
        assert done.returncode == 2 and b"Traceback" not in done.stderr, done.stderr
