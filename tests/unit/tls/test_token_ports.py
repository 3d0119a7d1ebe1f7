"""Every port against callers without a certificate: those with a good token, a bad one, none, and those that pretend."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rangelog_core.errors import ConfigInvalid, RoleForbids, Unauthorized, Unavailable
from rangelog_core.frame import Opcode
from rangelog_core.net import tls as tls_module
from rangelog_core.net.bearer import BEARER_CERTIFICATE, BEARER_KEY
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.net.greeting import TokenRenewal, hello_of
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_server_common.tokens.verifier import TokenTrust
from tests.support.certificates import TestCertificates
from tests.unit.core.net.test_principals import ALLOWED
from tests.unit.server_common.test_token_verifier import CLUSTER, NOW_S, Verifying
from tests.unit.tls.ports import INCARNATION, NAME, opened
from tests.unit.tls.test_ports import HTTP_PORTS, REFUSALS, caller, server_tls

TOKEN_PORTS = (
    Port.PD_API, Port.RANGE_DATA, Port.BROKER_DATA, Port.BROKER_CONTROL, Port.BROKER_REST, Port.BROKER_HTTP, Port.PD_PAGE,
)  # fmt: skip
OTHER_PORTS = [each for each in Port if each not in TOKEN_PORTS]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return TestCertificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def unchecked_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program does not look at its own certificate first, so that its peer has to."""
    monkeypatch.setattr(tls_module, "_check_time", lambda *_: 0.0)
    tls_module.certificates_of.cache_clear()


@pytest.fixture
def at() -> Verifying:
    return Verifying()


def without(certificates: TestCertificates) -> TlsConfig:
    """The files of a client without a certificate."""
    return TlsConfig(certificates.tls("client").ca)


@pytest.mark.parametrize("port", TOKEN_PORTS)
async def test_a_token_lets_in_and_nothing_else_does(certificates: TestCertificates, port: Port, at: Verifying) -> None:
    """No token, no whole one, one of others, one that has expired or was revoked: each is told so."""
    good, other = at.text(), Verifying()
    async with opened(port, server_tls(certificates, port), at.verifier) as found:
        await found.call(without(certificates), good)
        bad = ("", "s3cret", good[:-7], other.text(), at.text(cluster="else"), at.text(principal="admin:a"))
        for text in bad:
            with pytest.raises((Unauthorized, Unavailable)):
                await found.call(without(certificates), text)
        at.trust = TokenTrust(CLUSTER, 2, at.trust.keys, frozenset({"0123456789abcdef"}))
        with pytest.raises(Unauthorized, match="was revoked"):
            await found.call(without(certificates), good)
        at.trust = TokenTrust(CLUSTER, 3, at.trust.keys, frozenset())
        await found.call(without(certificates), good)
        at.now_s = NOW_S + 10_000
        with pytest.raises(Unauthorized, match="has expired"):
            await found.call(without(certificates), good)


@pytest.mark.parametrize("port", TOKEN_PORTS)
async def test_certificates_count_as_ever(certificates: TestCertificates, port: Port, at: Verifying) -> None:
    """Each role as without tokens; a bad certificate is refused, also with a good token, which does not raise a role."""
    async with opened(port, server_tls(certificates, port), at.verifier) as found:
        for role in Role:
            if role in ALLOWED[port].split():
                await found.call(certificates.tls(role))
            else:
                with pytest.raises(RoleForbids, match=f"{role}:x may not use the {port}"):
                    await found.call(certificates.tls(role), at.text())
        for kind in ("expired", "foreign", "self_signed"):
            with pytest.raises(REFUSALS):
                await found.call(getattr(certificates, kind)("admin"), at.text())


@pytest.mark.parametrize("port", OTHER_PORTS)
async def test_ports_that_are_not_for_clients(certificates: TestCertificates, port: Port, at: Verifying) -> None:
    """The public certificate opens none of them; they serve their own."""
    async with opened(port, server_tls(certificates, port)) as found:
        if port is not Port.PD_RAFT:
            with pytest.raises(REFUSALS):
                await found.call(without(certificates), at.text())
        await found.call(caller(certificates, port))


@pytest.mark.parametrize("port", TOKEN_PORTS)
async def test_ports_where_tokens_are_off(certificates: TestCertificates, port: Port, at: Verifying) -> None:
    """Nobody comes in without a certificate, whatever token it has; rangelog's own client says why."""
    told = "asks for a certificate: it does not accept tokens" if port not in HTTP_PORTS else ""
    async with opened(port, server_tls(certificates, port)) as found:
        with pytest.raises(REFUSALS, match=told):
            await found.call(without(certificates), at.text())


@pytest.mark.parametrize("port", [each for each in TOKEN_PORTS if each not in HTTP_PORTS])
async def test_what_the_public_key_signs(
    certificates: TestCertificates, port: Port, tmp_path: Path, at: Verifying
) -> None:
    """Everybody has that key: a certificate of an administrator by it is nobody's, with its issuer in the chain or not."""
    for chain in (b"", BEARER_CERTIFICATE):
        forged = forge(tmp_path, chain, certificates.tls("client").ca)
        async with opened(port, server_tls(certificates, port), at.verifier) as found:
            with pytest.raises(REFUSALS):
                await found.call(forged)


def forge(directory: Path, chain: bytes, ca: str) -> TlsConfig:
    """Return files of admin:evil, signed by the key that everybody has."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(BEARER_KEY, None)
    issuer = x509.load_pem_x509_certificate(BEARER_CERTIFICATE)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier("rangelog://admin/evil")]), False)
        .sign(signer, hashes.SHA256())
    )
    cert, key_path = directory / "forged.pem", directory / "forged.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM) + chain)
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    key_path.chmod(0o600)
    tls_module.certificates_of.cache_clear()
    return TlsConfig(ca, str(cert), str(key_path))


@pytest.mark.parametrize("port", [Port.RANGE_DATA, Port.BROKER_DATA])
async def test_the_next_token_on_an_open_connection(certificates: TestCertificates, port: Port, at: Verifying) -> None:
    """A hello with it is answered, and renews; one with a bad token is refused."""
    async with opened(port, server_tls(certificates, port), at.verifier) as found:
        texts = [at.text()]
        connection = await DataConnection.connect(
            f"127.0.0.1:{found.number}",
            replica_id(NAME, INCARNATION),
            token=lambda: texts[-1],
            tls=without(certificates),
            kind="range server" if port is Port.RANGE_DATA else "broker",
        )
        renewal = TokenRenewal(connection, texts[0], lambda: texts[-1], "me")
        texts.append(at.text(lifetime_s=7200))
        await renewal._renew()
        assert renewal._text == texts[1] and connection.closed is None
        with pytest.raises(Unauthorized):
            await connection.request(Opcode.HELLO, hello_of(connection.replica, "eyJ.bad.x", ""), timeout_s=5)
        connection.close()


def test_a_client_without_a_certificate_is_no_server(certificates: TestCertificates, tmp_path: Path) -> None:
    """The authority alone is enough for a client, and never for a server; half of a pair is refused."""
    ca = shutil.copy(certificates.tls("client").ca, tmp_path / "ca.pem")
    found = tls_module.certificates_of(TlsConfig(str(ca)))
    assert found.now.principal is None and found.now.server is None
    with pytest.raises(ConfigInvalid, match="needs a certificate"):
        found.require(Role.RANGE_SERVER)
    for half in (("ca", "cert", ""), ("ca", "", "key"), ("", "cert", "key"), ("", "", "")):
        with pytest.raises(ConfigInvalid, match="needs three files"):
            TlsConfig(*half)
