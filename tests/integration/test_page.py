"""The page of real placement drivers, without a browser: rights as declared, every member serves it, limits, bad settings."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

import rangelog
from pdctl.session import Session
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.page_ports import enable_page
from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_page.asking import Asking
from rangelog_page.cluster_views import LOAD_NEEDS
from rangelog_page.page_query import PageQuery
from rangelog_page.sections import SECTIONS
from tests.integration.conftest import TEST_SETTINGS
from tests.support.forked import run_pdctl, run_rangelog
from tests.support.leader import leader_of
from tests.support.page_cluster import fill
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ENV = TEST_SETTINGS
QUERIES = {
    "stream": PageQuery(name="flights"),
    "tail": PageQuery(name="flights"),
    "topic": PageQuery(name="default/orders"),
    "group": PageQuery(name="kitchen"),
}
OF_EVERY_CLIENT = {"/rangelog.v1.Members/ListMembers"}
"""How a client learns who the placement drivers are; for all roles."""


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, list[str]]]:
    """Three placement drivers with their pages, with something on each of them."""
    made = Cluster.open(tmp_path_factory.mktemp("page"), pds=3, range_servers=3, brokers=1, env=ENV)
    urls = enable_page(made)
    with made as cluster:
        wait_healthy(cluster)
        asyncio.run(fill(cluster))
        yield cluster, [each.removeprefix("http://").rstrip("/") for each in urls]


def get(address: str, path: str, tls: TlsConfig | None = None, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Ask once."""
    if tls is None:
        connection = HTTPConnection(address, timeout=30)
    else:
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
        connection = HTTPSConnection(address, timeout=30, context=context)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


PATHS = ("/", "/streams", "/streams/flights", "/topics/default/orders", "/groups/kitchen", "/tasks", "/health")


async def test_a_section_makes_the_calls_that_it_declares(
    paged: tuple[Cluster, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a viewer must be allowed to do is what the page does for it: each call of gRPC is among the section's needs."""
    cluster, _ = paged
    called: set[str] = set()
    real = grpc.aio.UnaryUnaryMultiCallable
    kinds = [kind for kind in real.__subclasses__() if "__call__" in vars(kind)]
    assert kinds

    for kind in kinds:
        original: Callable[..., Any] = kind.__call__

        def recorded(self: Any, *args: Any, _original: Callable[..., Any] = original, **kwargs: Any) -> Any:
            called.add(self._method.decode())
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__call__", recorded)
    session = Session(cluster.connect_string, None, None, None, None, 5.0)
    seen: dict[str, set[str]] = {}
    for name, section in SECTIONS.items():
        asking = Asking(await rangelog.connect(cluster.connect_string), session)
        called.clear()
        await section.look(asking, None, QUERIES.get(name, PageQuery()))
        seen[name] = set(called) - OF_EVERY_CLIENT
        await asking.close()
    needs = {name: {f"/{each}" for each in section.needs} for name, section in SECTIONS.items()}
    needs["servers"] |= {f"/{each}" for each in LOAD_NEEDS}  # the load is shown to those who may
    undeclared = {name: sorted(calls - needs[name]) for name, calls in seen.items()}
    assert not any(undeclared.values()), undeclared
    assert all(seen.values()), seen


def test_every_member_serves_it_and_goes_on_without_the_leader(paged: tuple[Cluster, list[str]]) -> None:
    """Leader or not, before and after the leader has died: all of a cluster, and all views."""
    cluster, addresses = paged
    for address in addresses:
        for path in PATHS:
            status, body, headers = get(address, path)
            assert status == 200, (address, path, body)
            assert headers["cache-control"] == "no-store" and "default-src 'none'" in headers["content-security-policy"]
        assert "UA1499" in get(address, "/parts/tail?name=flights")[1]
    gone = leader_of(cluster)
    left = [address for address, pd in zip(addresses, cluster.plan.pds, strict=True) if pd.name != gone]
    cluster.kill(gone)
    try:
        for address in left:
            eventually(
                lambda address=address: get(address, "/streams/flights")[0] == 200, "a view without the leader", 30
            )
            eventually(lambda address=address: "not reachable" in get(address, "/")[1], "the loss to be noticed", 30)
    finally:
        cluster.start_member(gone)
        wait_healthy(cluster)


def test_a_foreign_name_is_refused(paged: tuple[Cluster, list[str]]) -> None:
    """As in a browser whose site has let its name point here; the same request by the address is answered."""
    _, addresses = paged
    port = addresses[0].rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}"):
        status, body, _ = get(addresses[0], "/streams", Host=host)
        assert status == 421 and "flights" not in body
    assert get(addresses[0], "/streams", Host=f"localhost:{port}")[0] == 200


def raw(address: str, data: bytes) -> bytes:
    """Send bytes; return all that comes until the other end closes, or resets as it has not read all."""
    host, _, port = address.rpartition(":")
    found = b""
    with socket.create_connection((host, int(port)), 20) as sock, suppress(ConnectionError):
        sock.sendall(data)
        while part := sock.recv(65536):
            found += part
    return found


@pytest.mark.parametrize(
    "target",
    ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/%2e%2e/rangelog_pd/main.py", "//etc/passwd",
     "/../../../etc/passwd", "/static//etc/passwd", "/static/page.css%00.js", "/static/..\\app.py"],
)  # fmt: skip
def test_no_path_leads_to_a_file(paged: tuple[Cluster, list[str]], target: str) -> None:
    """Byte for byte as it is sent, without a client that tidies it up."""
    _, addresses = paged
    answer = raw(addresses[0], f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ", 2)[1] in (b"404", b"400") and b"import" not in answer and b"root:" not in answer


def test_bad_requests(paged: tuple[Cluster, list[str]]) -> None:
    """What is not HTTP is refused, and so is a head without end; the page goes on."""
    _, addresses = paged
    assert raw(addresses[0], b"\x16\x03\x01\x02\x00\x01\x00").startswith(b"HTTP/1.1 400")
    assert b" 200 " not in raw(addresses[0], b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000)
    assert get(addresses[0], "/streams")[0] == 200


@pytest.mark.long
def test_slow_requests(paged: tuple[Cluster, list[str]]) -> None:
    """A head that does not come to its end is cut off after its time; the page serves others beside it."""
    _, addresses = paged
    host, _, port = addresses[0].rpartition(":")
    slow = [socket.create_connection((host, int(port)), 60) for _ in range(40)]
    for sock in slow:
        sock.sendall(b"GET / HTTP/1.1\r\nHost:")
    assert get(addresses[0], "/streams")[0] == 200
    assert all(sock.recv(100) == b"" for sock in slow)
    for sock in slow:
        sock.close()


def test_too_many_connections(paged: tuple[Cluster, list[str]]) -> None:
    """Beyond the limit one is refused at once, and served again when there is room; the API does not notice."""
    cluster, addresses = paged
    host, _, port = addresses[1].rpartition(":")
    held = [socket.create_connection((host, int(port)), 20) for _ in range(200)]
    try:
        eventually(lambda: get(addresses[1], "/streams")[0] == 503, "a refusal", 10)
        assert "pd2" in json.dumps(_status(cluster))
    finally:
        for each in held:
            each.close()
    eventually(lambda: get(addresses[1], "/streams")[0] == 200, "room again", 10)


def _status(cluster: Cluster) -> Any:
    arguments = ["--pd", cluster.plan.pds[1].api_address, "cluster", "status", "-o", "json"]
    return json.loads(run_pdctl(arguments, env=os.environ, timeout=30).stdout)


def test_certificates_and_a_token(tmp_path: Path) -> None:
    """With both, both are asked for; the page's own certificate lends a client nothing; one of role client opens nothing."""
    env = ENV | dict.fromkeys(("RANGELOG_PD_TOKEN", "RANGELOG_SERVER_TOKEN", "RANGELOG_BROKER_TOKEN"), "s3cret-token")
    made = Cluster.open(tmp_path / "cluster", pds=1, range_servers=3, tls=True, env=env)
    (url,) = enable_page(made)
    assert made.certificates is not None
    address = url.removeprefix("https://").rstrip("/")
    client, admin, server = (
        made.certificates.files(each)
        for each in (
            Principal(Role.CLIENT, "local"),
            Principal(Role.ADMIN, "local"),
            Principal(Role.RANGE_SERVER, "rs1"),
        )
    )
    token = {"Authorization": "Basic " + base64.b64encode(b"me:s3cret-token").decode()}
    with made:
        eventually(lambda: "healthy" in get(address, "/parts/health", admin, **token)[1], "a healthy cluster")
        assert get(address, "/", admin)[0] == 401 and "basic" in get(address, "/", admin)[2]["www-authenticate"].lower()
        for path in ("/streams", "/parts/servers", "/parts/topics"):
            assert get(address, path, client, **token)[0] == 200
        for path in ("/parts/tasks", "/parts/repairs", "/parts/findings"):
            assert get(address, path, admin, **token)[0] == 200
            status, body, _ = get(address, path, client, **token)
            assert status == 403 and "client:local may not use" in body
        eventually(lambda: "records/s" in get(address, "/parts/servers", admin, **token)[1], "the load", 20)
        assert "records/s" not in get(address, "/parts/servers", client, **token)[1]
        status, body, _ = get(address, "/streams", server, **token)
        assert status == 403 and "may not use the page of a placement driver" in body
        assert b"HTTP" not in raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        made.placement_drivers["pd1"].env |= {"RANGELOG_PD_PAGE_CERT": client.cert, "RANGELOG_PD_PAGE_KEY": client.key}
        made.restart("pd1")
        eventually(lambda: get(address, "/streams", admin, **token)[0] == 200, "streams again")
        status, body, _ = get(address, "/parts/tasks", admin, **token)
        assert status == 403 and "client:local may not use" in body
        status, body, _ = get(address, "/parts/servers", admin, **token)
        assert status == 200 and "does not answer" not in body


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--page-listen", "127.0.0.1:x"], "page_listen"),
        (["--page-listen", "0.0.0.0:0"], "would be open to other machines without TLS"),
        (["--page-listen", "127.0.0.1:0", "--page-cert", "a.pem"], "page_cert and page_key go together"),
        (
            ["--page-listen", "127.0.0.1:0", "--page-cert", "a.pem", "--page-key", "a.key"],
            "page_cert is for a cluster with TLS",
        ),
    ],
)
def test_bad_settings(tmp_path: Path, options: list[str], said: str) -> None:
    """One line says what to do, and nothing is served."""
    code, stderr = _ended(tmp_path, "--member", "pd1=127.0.0.1:1@127.0.0.1:0", *options)
    assert code != 0 and said in stderr and "Traceback" not in stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """The placement driver ends with what to do, instead of running without its page."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        raft, api = free_ports(2)
        code, stderr = _ended(tmp_path, "--member", f"pd1=127.0.0.1:{raft}@127.0.0.1:{api}", "--page-listen", listen)
    assert code == 1 and f"cannot serve the page on {listen}" in stderr
    assert "choose another page_listen" in stderr and "Traceback" not in stderr


def _ended(directory: Path, *options: str) -> tuple[int, str]:
    """Run a placement driver that ends by itself; return its exit code, and what it said."""
    arguments = ["pd", "--name", "pd1", "--data-dir", str(directory / "pd1"), *options]
    found = run_rangelog(arguments, env=os.environ)
    return found.returncode, found.stderr.decode()
