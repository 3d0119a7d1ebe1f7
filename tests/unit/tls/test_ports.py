"""Every port against every caller: good and bad certificates, each role, none, plaintext, and callers that are slow."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from rangelog_cli.certs.authority import LOOPBACK_HOSTS, parse_principal
from rangelog_core.errors import ConfigInvalid, HandshakeFailed, RangelogError, RoleForbids, Unauthorized, Unavailable
from rangelog_core.net import tls as tls_module
from rangelog_core.net import tls_peers
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_proto.v1 import pd_pb2
from tests.support.certificates import TestCertificates
from tests.unit.core.net.test_principals import ALLOWED
from tests.unit.tls.ports import NAME, SERVER_ROLE, opened

REFUSALS = (RangelogError, OSError, http.client.HTTPException)
"""REST has a client of the standard library: it is told in its own words."""
HTTP_PORTS = (Port.BROKER_REST, Port.BROKER_HTTP, Port.METRICS, Port.PD_PAGE)
RANGELOG_PORTS = [port for port in Port if port not in HTTP_PORTS]
DIAL_NAMED = (Port.RANGE_DATA, Port.BROKER_DATA, Port.PD_RAFT)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return TestCertificates(tmp_path_factory.mktemp("certificates"))


def server_tls(certificates: TestCertificates, port: Port, name: str = NAME) -> TlsConfig:
    """The certificate of the process that serves a port."""
    principal = parse_principal(SERVER_ROLE[port], name)
    return certificates.authority.issue(principal, certificates.directory / "server", hosts=LOOPBACK_HOSTS)


def caller(certificates: TestCertificates, port: Port) -> TlsConfig:
    """The certificate of a program that may use a port."""
    return certificates.tls(ALLOWED[port].split()[-1])


@pytest.fixture(autouse=True)
def any_own_certificate(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A program does not look at its own certificate first, so that its peer has to."""
    if "keeps_own_check" not in request.keywords:
        monkeypatch.setattr(tls_module, "_check_time", lambda *_: 0.0)
    tls_module.certificates_of.cache_clear()


@pytest.mark.parametrize("port", list(Port))
async def test_each_role(certificates: TestCertificates, port: Port) -> None:
    """A role that may use the port is let in, each other one is refused and told so."""
    async with opened(port, server_tls(certificates, port)) as found:
        for role in Role:
            if role in ALLOWED[port].split():
                await found.call(certificates.tls(role))
            elif port is Port.PD_RAFT:  # it is closed before a byte of Raft
                with pytest.raises(Unavailable):
                    await found.call(certificates.tls(role))
            else:
                with pytest.raises(RoleForbids, match=f"{role}:x may not use the {port}"):
                    await found.call(certificates.tls(role))


@pytest.mark.parametrize("kind", ["expired", "foreign", "self_signed"])
@pytest.mark.parametrize("port", list(Port))
async def test_callers_with_bad_certificates(certificates: TestCertificates, port: Port, kind: str) -> None:
    """None is let in, whatever role it claims; the error names the file."""
    async with opened(port, server_tls(certificates, port)) as found:
        bad = getattr(certificates, kind)(ALLOWED[port].split()[-1])
        if port in HTTP_PORTS:
            with pytest.raises(REFUSALS):
                await found.call(bad)
        elif port is Port.PD_RAFT:  # the refusal comes as Raft's own handshake begins
            with pytest.raises(Unavailable):
                await found.call(bad)
        else:
            with pytest.raises(HandshakeFailed, match=r"refuses this side's certificate: .*-x\.pem"):
                await found.call(bad)
        await found.call(caller(certificates, port))  # it goes on serving others


@pytest.mark.parametrize("kind", ["expired", "foreign", "self_signed"])
@pytest.mark.parametrize("port", RANGELOG_PORTS)
async def test_servers_with_bad_certificates(certificates: TestCertificates, port: Port, kind: str) -> None:
    """No program talks to one, and the error says why and names the authority's file."""
    async with opened(port, getattr(certificates, kind)(SERVER_ROLE[port], NAME)) as found:
        good = caller(certificates, port)
        with pytest.raises(HandshakeFailed, match=r"the certificate of .* is not accepted \(") as refused:
            await found.call(good)
        assert good.ca in refused.value.message
        assert kind != "expired" or "expired" in refused.value.message


@pytest.mark.parametrize("port", RANGELOG_PORTS)
async def test_servers_of_another_role(certificates: TestCertificates, port: Port) -> None:
    """A client's certificate, or that of another kind of server, does not make a server."""
    for role in Role:
        if role is SERVER_ROLE[port]:
            continue
        async with opened(port, certificates.tls(role, NAME)) as found:
            with pytest.raises(HandshakeFailed, match="is not accepted"):
                await found.call(caller(certificates, port))


@pytest.mark.parametrize("port", DIAL_NAMED)
async def test_servers_of_another_name(certificates: TestCertificates, port: Port) -> None:
    """Where the caller means one server, another one of the same role is refused; a certificate for all of them is not."""
    async with opened(port, server_tls(certificates, port, "other")) as found:
        with pytest.raises(HandshakeFailed, match=r"it is that of .*:other"):
            await found.call(caller(certificates, port))
    async with opened(port, server_tls(certificates, port, "*")) as found:
        await found.call(caller(certificates, port))


@pytest.mark.parametrize("port", list(Port))
async def test_plaintext_to_a_port_with_tls(certificates: TestCertificates, port: Port) -> None:
    """No downgrade; the error says which files to give."""
    async with opened(port, server_tls(certificates, port)) as found:
        if port in (*HTTP_PORTS, Port.PD_RAFT):
            with pytest.raises(REFUSALS):
                await found.call(None)
        else:
            with pytest.raises(HandshakeFailed, match=r"if it serves TLS, give the files .* RANGELOG_TLS_CA"):
                await found.call(None)


@pytest.mark.parametrize("port", list(Port))
async def test_tls_to_a_port_without(certificates: TestCertificates, port: Port) -> None:
    """Nothing is sent; the error says what to give the server."""
    async with opened(port, None) as found:
        with pytest.raises(REFUSALS) as refused:
            await found.call(caller(certificates, port))
        if port not in (*HTTP_PORTS, Port.PD_RAFT):
            assert isinstance(refused.value, HandshakeFailed)
            assert (
                "does not speak TLS" in refused.value.message
                and "tls_ca, tls_cert and tls_key" in refused.value.message
            )
        await found.call(None)


@pytest.mark.parametrize("port", list(Port))
async def test_no_certificate(certificates: TestCertificates, port: Port) -> None:
    """TLS alone does not do: the server wants to know who calls. TLS 1.1 and earlier are not spoken."""
    async with opened(port, server_tls(certificates, port)) as found:
        context = ssl.create_default_context(cafile=certificates.tls("client").ca)
        context.check_hostname = False
        context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC asks for it
        assert not await asyncio.to_thread(_answers, found.number, context, 3.0)
        context.load_cert_chain(*_pair(caller(certificates, port)))
        assert await asyncio.to_thread(_answers, found.number, context, 0.3)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        assert not await asyncio.to_thread(_answers, found.number, context, 3.0)


def _pair(tls: TlsConfig) -> tuple[str, str]:
    return tls.cert, tls.key


def _answers(number: int, context: ssl.SSLContext, patience_s: float) -> bool:
    """Whether a port keeps a TLS connection open for so long."""
    try:
        with socket.create_connection(("127.0.0.1", number), 3) as plain, context.wrap_socket(plain) as sock:
            sock.settimeout(patience_s)
            return sock.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n"], ids=["silent", "half a hello", "http"]
)
@pytest.mark.parametrize("port", list(Port))
async def test_slow_handshakes_are_cut_off(
    certificates: TestCertificates, port: Port, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that does not finish its handshake is cut off, and others are served meanwhile."""
    monkeypatch.setattr(tls_peers, "HANDSHAKE_TIMEOUT_S", 0.5)
    monkeypatch.setattr("rangelog_pd.consensus.network.dialing.HANDSHAKE_TIMEOUT_S", 0.5)
    options = dict(_server_options()) | {"grpc.server_handshake_timeout_ms": 500}
    monkeypatch.setattr("rangelog_server_common.grpc_server.SERVER_OPTIONS", tuple(options.items()))
    async with opened(port, server_tls(certificates, port)) as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.number)
        writer.write(sent)
        cut_off = asyncio.create_task(_end(reader))
        await found.call(caller(certificates, port))
        await cut_off
        writer.close()


def _server_options() -> tuple[tuple[str, int], ...]:
    from rangelog_core.net.grpc_options import SERVER_OPTIONS

    return SERVER_OPTIONS


async def _end(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(60):
        while await _ended(reader):
            pass


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1000) != b""
    except ConnectionError:
        return False


@pytest.mark.parametrize("port", list(Port))
async def test_half_open_connections(certificates: TestCertificates, port: Port) -> None:
    """A caller that vanishes amid a handshake, or right after it, leaves the port serving."""
    async with opened(port, server_tls(certificates, port)) as found:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01"):
            _, writer = await asyncio.open_connection("127.0.0.1", found.number)
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()
        await found.call(caller(certificates, port))


async def test_who_calls_itself_by_another_name(certificates: TestCertificates) -> None:
    """A placement driver's certificate does not do for another placement driver's name."""
    async with opened(Port.PD_RAFT, server_tls(certificates, Port.PD_RAFT)) as found:
        await found.call(certificates.tls("pd", "x"))
        await found.call(certificates.tls("pd", "*"))
        # Both ends have proved the secret by then: the listener closes the connection instead of handing it over.
        from rangelog_pd.consensus.network.member_tls import check_name_of

        with pytest.raises(Unauthorized, match="calls itself x, with the certificate of pd:y"):
            check_name_of(parse_principal("pd", "y"), "x")


async def test_a_range_server_registers_itself_alone(certificates: TestCertificates) -> None:
    """The placement driver takes a range server's name from nobody else."""
    async with opened(Port.PD_API, server_tls(certificates, Port.PD_API)) as found:
        pd = PdClient([f"127.0.0.1:{found.number}"], tls=certificates.tls("range-server", "rs2"))
        with pytest.raises(RoleForbids, match="says that it is 'rs1'"):
            await pd.call(pd_pb2.RegisterServerRequest(server="rs1"), pd_pb2.RegisterServerResponse, timeout_s=5)
        with pytest.raises(RangelogError) as refused:  # nothing is behind the port here
            await pd.call(pd_pb2.RegisterServerRequest(server="rs2"), pd_pb2.RegisterServerResponse, timeout_s=5)
        assert not isinstance(refused.value, RoleForbids)
        await pd.close()


@pytest.mark.keeps_own_check
async def test_a_program_looks_at_its_own_certificate_first(certificates: TestCertificates) -> None:
    """An expired one is not even tried, and the error is not one of a connection."""
    async with opened(Port.PD_API, server_tls(certificates, Port.PD_API)) as found:
        with pytest.raises(ConfigInvalid, match=r"client-x.pem has expired at .*: issue it again"):
            await found.call(certificates.expired("client"))


async def test_nothing_secret_is_logged(
    certificates: TestCertificates, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes wrong, no line of a private key is in a message."""
    caplog.set_level(0)
    said = []
    bad: list[Callable[[], TlsConfig]] = [
        lambda: certificates.expired("client"), lambda: certificates.foreign("client"),
        lambda: certificates.self_signed("client"),
    ]  # fmt: skip
    for port in (Port.RANGE_DATA, Port.PD_API):
        async with opened(port, server_tls(certificates, port)) as found:
            for make in bad:
                with pytest.raises(RangelogError) as refused:
                    await found.call(make())
                said.append(refused.value.message)
    output = capfd.readouterr()
    everything = "\n".join([*said, caplog.text, output.out, output.err])
    assert said
    for key in certificates.directory.rglob("*.key"):
        for line in Path(key).read_text().splitlines()[1:-1]:
            assert line not in everything
