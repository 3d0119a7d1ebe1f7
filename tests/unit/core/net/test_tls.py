"""TLS files: what is checked before a connection is made, and files that change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from datetime import timedelta
from pathlib import Path

import pytest

from rangelog_core.errors import ConfigInvalid, HandshakeFailed
from rangelog_core.net import tls as tls_module
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import Certificates, TlsConfig, certificates_of
from tests.support.certificates import TestCertificates, replace_files


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return TestCertificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each use looks at the files."""
    monkeypatch.setattr(tls_module, "LOOK_INTERVAL_S", 0.0)


def test_the_environment() -> None:
    """All three variables, or none."""
    assert TlsConfig.from_environment({}) is None
    given = {"RANGELOG_TLS_CA": "a", "RANGELOG_TLS_CERT": "b", "RANGELOG_TLS_KEY": "c"}
    assert TlsConfig.from_environment(given) == TlsConfig("a", "b", "c")
    for missing in given:
        with pytest.raises(ConfigInvalid, match="three files"):
            TlsConfig.from_environment({key: value for key, value in given.items() if key != missing})


def test_good_files(certificates: TestCertificates) -> None:
    """The principal is known without a connection; one object per configuration."""
    config = certificates.tls("pd", "pd1")
    found = certificates_of(config)
    assert found is certificates_of(TlsConfig(config.ca, config.cert, config.key))
    assert found.now.principal == Principal(Role.PD, "pd1")
    assert found.now.expires_s > time.time() + 80 * 24 * 3600
    found.require(Role.PD)


def test_bad_files_are_named(certificates: TestCertificates, tmp_path: Path) -> None:
    """Each message names the file, and says what to do."""
    good = certificates.tls("client", "alice")
    other = certificates.tls("client", "bob")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    missing = str(tmp_path / "missing.pem")
    cases = {
        TlsConfig(missing, good.cert, good.key): f"cannot read the TLS file {missing}",
        TlsConfig(good.ca, missing, good.key): f"cannot read the TLS file {missing}",
        TlsConfig(good.ca, good.cert, missing): f"cannot read the TLS file {missing}",
        TlsConfig("\0", good.cert, good.key): "cannot read the TLS file",
        TlsConfig(str(garbage), good.cert, good.key): f"{garbage} has no certificates of authorities",
        TlsConfig(good.ca, str(garbage), good.key): f"{garbage} and .* are not a certificate and a key",
        TlsConfig(good.ca, good.cert, str(garbage)): "are not a certificate and a key",
        TlsConfig(good.ca, good.cert, other.key): f"the key {other.key} is not that of the certificate {good.cert}",
        certificates.expired("client", "late"): "client-late.pem has expired at .* issue it again",
        certificates.at("client", "early", timedelta(days=-1), 10, "early"): "is valid from .* is the clock",
    }
    for config, said in cases.items():
        with pytest.raises(ConfigInvalid, match=said):
            Certificates(config)


def test_a_key_with_a_password_is_refused_without_a_question(certificates: TestCertificates, tmp_path: Path) -> None:
    """OpenSSL would ask at the terminal."""
    from cryptography.hazmat.primitives import serialization

    good = certificates.tls("client", "alice")
    key = serialization.load_pem_private_key(Path(good.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"s3cret")
        )
    )  # fmt: skip
    with pytest.raises(ConfigInvalid, match="without a password"):
        Certificates(TlsConfig(good.ca, good.cert, str(locked)))


@pytest.mark.parametrize("kind", ["foreign", "self_signed", "distrusting"])
def test_a_server_does_not_start_with_what_peers_refuse(certificates: TestCertificates, kind: str) -> None:
    """It shows its certificate to itself first."""
    found = Certificates(getattr(certificates, kind)("pd", "pd1"))
    with pytest.raises(ConfigInvalid, match=r"peers will not accept .*pd-pd1.pem"):
        found.require(Role.PD)


def test_a_server_needs_a_certificate_of_its_role(certificates: TestCertificates) -> None:
    """The message says how to get one."""
    for role in ("broker", "client", "admin"):
        with pytest.raises(ConfigInvalid, match="certs issue range-server"):
            Certificates(certificates.tls(role)).require(Role.RANGE_SERVER)


def test_clocks_that_are_five_minutes_behind(certificates: TestCertificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new certificate is valid there at once; one that begins five minutes from now is not."""
    fresh = certificates.tls("client", "skewed")
    now_s = time.time()
    monkeypatch.setattr(tls_module.time, "time", lambda: now_s - 5 * 60)
    Certificates(fresh)
    monkeypatch.setattr(tls_module.time, "time", lambda: now_s - 11 * 60)
    with pytest.raises(ConfigInvalid, match="is the clock of this machine right"):
        Certificates(fresh)


def test_a_key_that_others_can_read_is_warned_of(
    certificates: TestCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    """With its path and not its content."""
    config = certificates.tls("client", "careless")
    assert os.stat(config.key).st_mode & 0o77 == 0
    with caplog.at_level(logging.WARNING):
        Certificates(config)
        assert not caplog.records
        os.chmod(config.key, 0o640)
        Certificates(config)
    (said,) = caplog.messages
    assert f"chmod 600 {config.key}" in said
    assert Path(config.key).read_text().splitlines()[1] not in said


@pytest.mark.parametrize(
    ("days", "left_days", "warned"), [(90, 6.5, True), (90, 8, False), (4, 2, False), (4, 0.5, True)]
)
def test_a_certificate_that_expires_soon_is_warned_of(
    certificates: TestCertificates, caplog: pytest.LogCaptureFixture, days: int, left_days: float, warned: bool
) -> None:
    """A week before, or in the last quarter of a short one."""
    config = certificates.at("pd", "soon", timedelta(days=days - left_days), days, "soon")
    Certificates(config)
    assert [f"{config.cert} expires at" in each for each in caplog.messages] == [True] * warned


@pytest.mark.usefixtures("looks_at_once")
async def test_changed_files_are_taken_by_the_next_handshake(certificates: TestCertificates, tmp_path: Path) -> None:
    """The listener stays; it shows the new certificate, and accepts those of a new authority only."""
    config = certificates.tls("broker", "b1")
    alice = Principal(Role.CLIENT, "alice")
    server, client = Certificates(config), Certificates(certificates.authority.issue(alice, tmp_path / "alice"))
    listening = await asyncio.start_server(
        lambda _reader, writer: (writer.write(b"hi"), writer.close()), "127.0.0.1", 0, ssl=server.server_context()
    )
    port = listening.sockets[0].getsockname()[1]

    async def serial(context: ssl.SSLContext) -> object:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="x")
        try:
            if await reader.read() != b"hi":  # with TLS 1.3 the server refuses after the client's handshake
                raise ssl.SSLError("refused")
            return writer.get_extra_info("peercert")["serialNumber"]
        finally:
            writer.close()

    async with listening:
        first = await serial(client.now.client)
        before = server.load_count
        assert await serial(client.now.client) == first
        certificates.tls("broker", "b1")  # again, in the same place
        second = await serial(client.now.client)
        assert second != first and server.load_count == before + 1
        others = TestCertificates(tmp_path / "others")
        replace_files(config, others.tls("broker", "b1"))
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            await serial(client.now.client)
        new_client = Certificates(others.tls("client", "c"))
        assert await serial(new_client.now.client) not in (first, second)
        trusting = ssl.SSLContext(
            ssl.PROTOCOL_TLS_CLIENT
        )  # accepts the new server, shows the old authority's certificate
        trusting.check_hostname = False
        trusting.load_verify_locations(config.ca)
        trusting.load_cert_chain(client.config.cert, client.config.key)
        with pytest.raises(ssl.SSLError, match="refused"):
            await serial(trusting)


@pytest.mark.usefixtures("looks_at_once")
def test_bad_changes_leave_what_was_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Expired files, half of a pair, another role, garbage: the log says so, and the next good change is taken."""
    certificates = TestCertificates(tmp_path)
    config = certificates.tls("pd", "pd1")
    found = Certificates(config)
    before = found.now
    good = [Path(path).read_bytes() for path in (config.cert, config.key)]
    bad = [certificates.expired("pd", "pd1"), certificates.foreign("pd", "pd1"), certificates.tls("client", "c")]
    contents = [[Path(path).read_bytes() for path in (each.cert, each.key)] for each in bad]
    contents += [[contents[1][0], good[1]], [b"garbage", good[1]], [b"", b""]]
    for cert, key in contents:
        found._complained_until_s = 0.0
        caplog.clear()
        Path(config.cert).write_bytes(cert)
        Path(config.key).write_bytes(key)
        assert found.now is before and found.load_count == 0
        assert "those read before stay in force" in caplog.text and config.cert in caplog.text
        assert b"PRIVATE" not in caplog.text.encode()
    Path(config.cert).unlink()
    assert found.now is before
    caplog.set_level(logging.INFO)
    certificates.tls("pd", "pd1")
    assert found.now is not before and found.load_count == 1
    assert "pd:pd1, valid until" in caplog.text


def test_complaints_are_few(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad file is looked at again and again, and complained of once a minute."""
    found = Certificates(TestCertificates(tmp_path).tls("pd", "pd1"))
    Path(found.config.cert).write_text("garbage")
    monkeypatch.setattr(found, "_next_look_s", 0.0)
    for _ in range(5):
        found._next_look_s = 0.0
        assert found.now
    assert len(caplog.records) == 1


def test_a_client_may_be_of_another_authority_than_its_servers(certificates: TestCertificates) -> None:
    """Its `ca` is that of the servers; whether they accept it is theirs to say."""
    assert Certificates(certificates.foreign("client", "c")).now.principal.name == "c"


def test_errors_are_handshake_errors() -> None:
    """A refusal over the wire becomes the same class again."""
    from rangelog_core.errors import RoleForbids, Unauthorized, Unavailable, error_from_code

    assert type(error_from_code("HANDSHAKE_FAILED", "x")) is HandshakeFailed
    assert issubclass(HandshakeFailed, Unavailable) and HandshakeFailed("x").retriable
    assert type(error_from_code("ROLE_FORBIDS", "x")) is RoleForbids
    assert issubclass(RoleForbids, Unauthorized) and not RoleForbids("x").retriable
