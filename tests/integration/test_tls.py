"""Whole clusters with TLS: everything works, nobody is let in who may not, and certificates change under load."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

import rangelog
from rangelog import TlsConfig
from rangelog.errors import HandshakeFailed
from rangelog_cli.certs.authority import Authority, paths_of
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.principals import Principal, Role
from tests.security.matrix import ROLES_OF_PORTS, Target, check, knock, targets_of
from tests.support.certificates import TestCertificates
from tests.support.forked import run_pdctl
from tests.support.leader import leader_of
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ClusterFactory = Callable[..., Cluster]
GOES_ON_S = 60.0


def _environment(tls: TlsConfig) -> dict[str, str]:
    return dict(os.environ) | {f"RANGELOG_TLS_{key.upper()}": path for key, path in asdict(tls).items()}


@pytest.mark.hasty
async def test_everything_works_with_tls(cluster_factory: ClusterFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams through the death of a range server and of the leader, topics and groups through a broker's; pdctl and REST."""
    cluster = cluster_factory(range_servers=4, brokers=2, tls=True)
    assert cluster.tls is not None and cluster.client_tls is not None
    async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as client:
        await client.create_stream("kept")
        async with client.writer("kept") as writer:
            for number in range(3_000):
                writer.append_nowait(b"%d" % number)
                if number == 1_000:
                    cluster.kill("rs1")
                if number == 2_000:
                    await writer.flush()
                    cluster.kill(leader_of(cluster))
                await writer.ready()
            await writer.flush()
        values = [record.value async for record in client.reader("kept", start="earliest", follow=False)]
        assert values == [b"%d" % number for number in range(3_000)]

        await client.topics.create("orders", shards=2)
        async with client.producer("orders") as producer:
            for number in range(500):
                await producer.send(b"%d" % number, key=b"k%d" % (number % 7))
                if number == 250:
                    cluster.kill("broker1")
        seen = []
        async with client.group("kitchen", "orders", auto_commit_s=0.2) as member:
            async for record in member:
                seen.append(record.value)
                if len(seen) == 500:
                    break
        assert sorted(seen, key=int) == [b"%d" % number for number in range(500)]

    for name, value in _environment(cluster.client_tls).items():
        monkeypatch.setenv(name, value)
    async with await rangelog.connect(cluster.connect_string) as client:
        assert (await client.describe_stream("kept")).name == "kept"

    pd = ["--pd", cluster.connect_string]
    listed = run_pdctl([*pd, "server", "list", "-o", "json"], env=_environment(cluster.tls))
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == 4
    refused = run_pdctl([*pd, "task", "list"], env=_environment(cluster.client_tls))
    assert refused.returncode == 1, refused
    assert b"client:local may not use" in refused.stderr and b"take a certificate of role admin" in refused.stderr

    context = ssl.create_default_context(cafile=cluster.client_tls.ca)
    context.load_cert_chain(cluster.client_tls.cert, cluster.client_tls.key)
    url = f"https://127.0.0.1:{cluster.plan.brokers[1].rest_port}/v1/streams"
    with await asyncio.to_thread(urllib.request.urlopen, url, None, 30, context=context) as answer:
        assert "kept" in [each["name"] for each in json.loads(answer.read())["streams"]]

    everything = "".join(path.read_text() for path in (cluster.directory / "logs").iterdir())
    assert "TLS on all ports" in everything
    for key in (cluster.directory / "certs").glob("*.key"):
        for line in key.read_text().splitlines()[1:-1]:
            assert line not in everything
    assert cluster.plan.raft_secret not in everything


async def test_nobody_is_let_in_who_may_not(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Each role, bad certificates, none and plaintext at every port of every process; each role at every call."""
    cluster = cluster_factory(brokers=1, tls=True)
    outcome = await check(cluster, TestCertificates(tmp_path, Authority.open(cluster.directory / "certs")))
    assert outcome.wrong == [] and outcome.plaintext_ports == []
    assert outcome.cells > 600


@pytest.mark.hasty
async def test_certificates_and_the_authority_change_under_load(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """Both authorities, then new certificates, then the new authority alone: no process is started again, no ack is lost."""
    cluster = cluster_factory(range_servers=4, brokers=1, tls=True)
    assert cluster.client_tls is not None
    pids = {name: process.pid for name, process in cluster.members.items()}
    old_client = Authority.open(cluster.directory / "certs").issue(Principal(Role.CLIENT, "old"), tmp_path / "issued")
    async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as client:
        await client.create_stream("load")
        await client.topics.create("busy", shards=1)
        load = asyncio.create_task(_append_until_cancelled(client))
        try:
            await _progress(load, 500)
            await asyncio.to_thread(_replace_authority, cluster, tmp_path / "new")
            assert {name: process.pid for name, process in cluster.members.items() if process.running} == pids

            new_client = Authority.open(tmp_path / "new").issue(Principal(Role.CLIENT, "new"), tmp_path / "issued")
            async with await rangelog.connect(cluster.connect_string, tls=new_client) as other:
                assert (await other.describe_stream("load")).name == "load"
                async with other.producer("busy") as producer:
                    await producer.send(b"from the new one", key=b"k")
            stranger = TlsConfig(new_client.ca, old_client.cert, old_client.key)
            async with await rangelog.connect(cluster.connect_string, tls=stranger) as other:
                with pytest.raises(HandshakeFailed, match="refuses this side's certificate"):
                    await other.describe_stream("load")

            await _progress(load, 500)
            cluster.kill("rs1")  # every pair of processes connects anew, by the new certificates
            victim = leader_of(cluster)
            cluster.kill(victim)
            cluster.start_member(victim)
            cluster.start_member("rs1")
            await _progress(load, 2_000)
        finally:
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
        values = [record.value async for record in client.reader("load", start="earliest", follow=False)]
        assert values[: len(_acked)] == [b"%d" % number for number in range(len(_acked))]


_acked: list[int] = []


async def _append_until_cancelled(client: rangelog.Client) -> None:
    _acked.clear()
    async with client.writer("load") as writer:
        for number in range(10_000_000):
            await writer.append(b"%d" % number)
            _acked.append(number)
            await asyncio.sleep(0.001)


async def _progress(load: asyncio.Task[None], more: int) -> None:
    """Wait until so many more are acked. Fails when the load does, or after a while."""
    wanted = len(_acked) + more

    def acked() -> bool:
        assert not load.done(), load.exception()
        return len(_acked) >= wanted

    await until(acked, "no acks", GOES_ON_S)


def _replace_authority(cluster: Cluster, new: Path) -> None:
    """As docs/security.md says: trust both, issue all anew, trust the new one alone. Waits until each step is taken."""
    home = cluster.directory / "certs"
    old_callers = TestCertificates(new.parent / "old", Authority.open(home))
    fresh = Authority.create(new)
    new_callers = TestCertificates(new.parent / "fresh", fresh)
    old_pem, new_pem = (home / "ca.pem").read_bytes(), (new / "ca.pem").read_bytes()
    targets = list(targets_of(cluster))
    for target in targets:  # made before their authority is replaced
        old_callers.tls(_caller(target), "m")

    def knocked(target: Target, callers: TestCertificates) -> str:
        found = TlsConfig(*asdict(paths_of(Principal(_caller(target), "m"), callers.directory / "good")).values())
        return knock(target, TlsConfig(str(home / "ca.pem"), found.cert, found.key))

    _put(home / "ca.pem", old_pem + new_pem)
    for target in targets:
        new_callers.tls(_caller(target), "m")
        eventually(
            lambda target=target: knocked(target, new_callers) == "admitted", f"{target} trusts one only", GOES_ON_S
        )
    for pem in sorted(home.glob("*-*.pem")):
        role = next(each for each in Role if pem.stem.startswith(f"{each}-"))
        principal = Principal(role, pem.stem.removeprefix(f"{role}-"))
        made, files = fresh.issue(principal, new / "issued", hosts=("127.0.0.1",)), paths_of(principal, home)
        _put(Path(files.key), Path(made.key).read_bytes())
        _put(Path(files.cert), Path(made.cert).read_bytes())
    for target in targets:
        served = (home / f"{target.server_role}-{target.process}.pem").read_text()
        eventually(
            lambda target=target, served=served: _shown(target, served), f"{target} shows its old one", GOES_ON_S
        )
    _put(home / "ca.pem", new_pem)
    for target in targets:
        eventually(lambda target=target: knocked(target, old_callers) == "refused", f"{target} trusts both", GOES_ON_S)
        assert knocked(target, new_callers) == "admitted"


def _caller(target: Target) -> Role:
    return Role(ROLES_OF_PORTS[target.port].split()[-1])


def _shown(target: Target, pem: str) -> bool:
    """Whether a port shows this certificate; not while it takes no connection, since it reads new files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with socket.create_connection((target.host, target.number), 5) as plain, context.wrap_socket(plain) as sock:
            return sock.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(pem)
    except OSError:
        return False


def _put(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(content)
    fresh.chmod(0o600)
    os.replace(fresh, path)
