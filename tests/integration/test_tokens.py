"""Tokens in a cluster of processes with TLS: a client without a certificate on every port, its bounds, and its end."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import rangelog
from rangelog.errors import HandshakeFailed, RangelogError, RightMissing, RoleForbids, Unauthorized, Unavailable
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.peer_client import PeerClient
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.tokens import TEXT_LENGTH_MAX
from tests.security.rights import HEARTBEATS_S, pdctl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ClusterFactory = Callable[..., Cluster]
ENV = {f"RANGELOG_{role}_TOKENS": "true" for role in ("PD", "SERVER", "BROKER")} | {
    "RANGELOG_BROKER_REST_LISTEN": "127.0.0.1:0"
}


def admin(cluster: Cluster, *arguments: str) -> str:
    done = pdctl(cluster, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def create(cluster: Cluster, *arguments: str) -> str:
    return admin(cluster, "token", "create", *arguments).strip()


def connect(cluster: Cluster, token: object) -> object:
    tls = TlsConfig(Path(cluster.client_tls.ca).as_posix()) if cluster.client_tls else None
    return rangelog.connect(cluster.connect_string, token=token, tls=tls)  # type: ignore[arg-type]


def ask_rest(cluster: Cluster, path: str, token: str) -> tuple[int, bytes]:
    """Return status and body of a GET without a certificate."""
    home = next(iter(cluster.directory.glob("b*1/endpoint.json")))
    address = json.loads(home.read_text())["rest_address"]
    assert cluster.client_tls is not None
    context = ssl.create_default_context(cafile=cluster.client_tls.ca)
    context.check_hostname = False
    request = urllib.request.Request(
        f"https://{address}{path}", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


async def test_a_client_with_a_token_alone(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """It writes, reads, produces and consumes as its rules say; bounds take away; a revocation ends what is open."""
    cluster = await asyncio.to_thread(cluster_factory, pds=1, range_servers=3, brokers=1, tls=True, env=ENV)
    admin(cluster, "acl", "grant", "client:orders", "append,read,admin", "stream", "orders-*")
    admin(cluster, "acl", "grant", "client:orders", "append,read,admin", "namespace", "shop")
    admin(cluster, "acl", "grant", "client:orders", "read", "group", "g")
    admin(cluster, "acl", "enforce", "on", "--yes")
    path = tmp_path / "orders.token"
    admin(cluster, "token", "create", "orders", "--out", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text().strip()
    bound = create(cluster, "reader", "--for", "client:orders", "--only", "read stream orders-1")
    async with connect(cluster, rangelog.TokenFile(str(path))) as client:  # type: ignore[attr-defined]
        await client.create_stream("orders-1")
        writer = await client.writer("orders-1").__aenter__()
        assert (await writer.append(b"1")).offset == 0
        assert [each.value async for each in client.reader("orders-1", start="earliest", follow=False)] == [b"1"]
        with pytest.raises(RightMissing, match="client:orders may not admin stream 'other'"):
            await client.create_stream("other")
        await client.topics.create_namespace("shop")
        await client.topics.create("shop/t", shards=1)
        async with client.producer("shop/t") as producer:
            await producer.send(b"2", key=b"k")
        await refused_beyond_bounds(cluster, bound)
        for path_of, status in (("/v1/streams/orders-1", 200), ("/v1/streams/other", 403)):
            assert (await asyncio.to_thread(ask_rest, cluster, path_of, text))[0] == status, path_of
        assert (await asyncio.to_thread(ask_rest, cluster, "/v1/streams/orders-1", ""))[0] == 401
        await refused_elsewhere(cluster, text)
        await asyncio.to_thread(admin, cluster, "token", "revoke", "orders")
        with pytest.raises(RangelogError, match="was revoked"):  # not: too few servers answer
            async with asyncio.timeout(HEARTBEATS_S + 30):
                while True:
                    await writer.append(b"more", timeout_s=10)
                    await asyncio.sleep(0)
    with pytest.raises(Unauthorized, match="was revoked"):
        async with connect(cluster, text) as again:  # type: ignore[attr-defined]
            await again.describe_stream("orders-1")
    assert (await asyncio.to_thread(ask_rest, cluster, "/v1/streams/orders-1", text))[0] == 401
    look_for_tokens(cluster, [text, bound])


async def refused_beyond_bounds(cluster: Cluster, bound: str) -> None:
    """A token that is bound to reading one stream does that, and nothing else of what its client may do."""
    async with connect(cluster, lambda: bound) as client:  # type: ignore[attr-defined]
        assert [each.value async for each in client.reader("orders-1", start="earliest", follow=False)] == [b"1"]
        with pytest.raises(RightMissing, match="bound to other things"):
            async with client.writer("orders-1") as writer:
                await writer.append(b"x")
        with pytest.raises(RightMissing, match="bound to other things"):
            await client.create_stream("orders-2")
        with pytest.raises(RightMissing, match="bound to other things"):
            await client.topics.describe("shop/t")
        assert [each.name async for each in client.list_streams()] == ["orders-1"]


async def refused_elsewhere(cluster: Cluster, text: str) -> None:
    """No administration, no port that is not for clients; and no other text is a token."""
    assert cluster.client_tls is not None
    tls = TlsConfig(cluster.client_tls.ca)
    address = cluster.pd_addresses[0]
    async with PeerClient(address, "pd", token=text, tls=tls, role=Role.PD) as pd:
        with pytest.raises(RoleForbids, match="client:orders may not use"):
            await pd.inspect_member(timeout_s=10)
    home = next(iter(cluster.directory.glob("rs1/endpoint.json")))
    async with PeerClient(json.loads(home.read_text())["control_address"], "rs1", token=text, tls=tls) as server:
        with pytest.raises((HandshakeFailed, Unavailable)):
            await server.get_status(timeout_s=5)
    head, claims, signature = text.split(".")
    flipped = signature[:-2] + ("AA" if signature[-2:] != "AA" else "BB")
    for bad in (
        "",
        "no-token",
        text[:-5],
        f"{head}.{claims}.{flipped}",
        f"{head}.{claims}.",
        "eyJ" + "x" * (TEXT_LENGTH_MAX - 5) + "..",
    ):
        async with connect(cluster, bad) as client:  # type: ignore[attr-defined]
            with pytest.raises(Unauthorized):
                await client.describe_stream("orders-1")
    with pytest.raises(RangelogError, match="limit"):
        async with connect(cluster, "eyJ" + "x" * 1024 * 1024) as client:  # type: ignore[attr-defined]
            await client.describe_stream("orders-1")


def look_for_tokens(cluster: Cluster, texts: list[str]) -> None:
    """No log and no file of the cluster has the text of a token, or its signature."""
    files = [each for each in cluster.directory.rglob("*") if each.is_file()]
    assert any(each.suffix == ".log" for each in files)
    for file in files:
        content = file.read_bytes()
        for text in texts:
            assert text.encode() not in content and text.rpartition(".")[2].encode() not in content, file
