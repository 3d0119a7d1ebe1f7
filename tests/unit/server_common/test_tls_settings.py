"""Which servers start: with certificates, on loopback, or with `insecure = true`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from rangelog_broker.settings import BrokerSettings
from rangelog_core.errors import ConfigInvalid
from rangelog_core.net.principals import Role
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings
from rangelog_server_common.tls_settings import TlsSettings, is_loopback, open_tls
from tests.support.certificates import TestCertificates

FAR = "10.0.0.7"


def settings_of(role: Role, tmp_path: Path, host: str, **more: Any) -> TlsSettings:
    """Settings of a server that listens at `host` on all of its ports."""
    if role is Role.PD:
        member = {"raft_address": f"{host}:1", "api_address": f"{host}:2"}
        others = {name: {"raft_address": "127.0.0.1:3", "api_address": "127.0.0.1:4"} for name in ("m2", "m3")}
        values = {"data_dir": tmp_path, "members": {"m1": member} | others, "raft_secret": "secret of the group"}
        return load_settings(PdSettings, {"name": "m1"} | values | more)
    if role is Role.RANGE_SERVER:
        values = {"data_dir": tmp_path, "data_listen": f"{host}:1", "control_listen": f"{host}:2"}
        return load_settings(RangeServerSettings, {"name": "m1"} | values | more)
    listens = {"listen": f"{host}:1", "control_listen": f"{host}:2", "rest_listen": f"{host}:3"}
    doors = {"doors": {"toy": {"listen": f"{host}:4"}}}
    return load_settings(BrokerSettings, {"name": "m1", "pd": ["127.0.0.1:1"]} | listens | doors | more)


PORTS = {
    Role.PD: ["listen", "raft_listen"],
    Role.RANGE_SERVER: ["data_listen", "control_listen"],
    Role.BROKER: ["listen", "control_listen", "rest_listen", "doors.toy.listen"],
}


@pytest.fixture
def said() -> Iterator[list[Any]]:
    """What is logged."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.mark.parametrize("role", list(PORTS))
def test_loopback_is_plaintext_without_a_word(role: Role, tmp_path: Path, said: list[Any]) -> None:
    """The default."""
    for host in ("127.0.0.1", "localhost", "[::1]", "127.9.9.9"):
        assert open_tls(settings_of(role, tmp_path, host), role) is None
    assert said == []


@pytest.mark.parametrize("role", list(PORTS))
def test_plaintext_beyond_loopback_is_refused(role: Role, tmp_path: Path) -> None:
    """Each port is named, and both ways out."""
    for host in (FAR, "rs1.example.org", "0.0.0.0", "[::]"):
        with pytest.raises(ConfigInvalid) as refused:
            open_tls(settings_of(role, tmp_path, host, **_advertised(role)), role)
        message = refused.value.message
        assert all(f"{port} {host}" in message for port in PORTS[role]), message
        assert "tls_ca, tls_cert and tls_key" in message and "insecure = true" in message and "\n" not in message


def _advertised(role: Role) -> dict[str, str]:
    return {} if role is Role.PD else {"advertise_host": FAR}


@pytest.mark.parametrize("role", list(PORTS))
def test_insecure_is_said_loudly(role: Role, tmp_path: Path, said: list[Any]) -> None:
    """At every start, with the ports."""
    assert open_tls(settings_of(role, tmp_path, FAR, insecure=True), role) is None
    (line,) = said
    assert line["log_level"] == "warning" and "INSECURE" in line["event"]
    assert len(line["ports"]) == len(PORTS[role])


@pytest.mark.parametrize("role", list(PORTS))
def test_with_certificates(role: Role, tmp_path: Path, said: list[Any]) -> None:
    """Any address; the log says whose certificate it is. One of another role, or none that can be read, is refused."""
    certificates = TestCertificates(tmp_path)
    good = certificates.tls(role, "m1")
    files = {"tls_ca": good.ca, "tls_cert": good.cert, "tls_key": good.key}
    assert open_tls(settings_of(role, tmp_path, FAR, **files), role) == good
    assert [(each["event"], each["certificate"]) for each in said] == [("TLS on all ports", f"{role}:m1")]
    wrong = certificates.tls("client")
    with pytest.raises(ConfigInvalid, match=f"certs issue {role}"):
        open_tls(settings_of(role, tmp_path, FAR, **files | {"tls_cert": wrong.cert, "tls_key": wrong.key}), role)
    with pytest.raises(ConfigInvalid, match="cannot read the TLS file"):
        open_tls(settings_of(role, tmp_path, FAR, **files | {"tls_key": str(tmp_path / "gone.key")}), role)


@pytest.mark.parametrize("role", list(PORTS))
def test_some_of_the_files_are_no_configuration(role: Role, tmp_path: Path) -> None:
    """No server takes half a configuration for none."""
    for given in ({"tls_ca": "a"}, {"tls_cert": "b", "tls_key": "c"}, {"tls_ca": "a", "tls_cert": "b"}):
        with pytest.raises(ConfigInvalid, match="go together"):
            settings_of(role, tmp_path, "127.0.0.1", **given)


def test_a_single_placement_driver_opens_no_raft_port(tmp_path: Path) -> None:
    """It has none to protect."""
    member = {"raft_address": f"{FAR}:1", "api_address": "127.0.0.1:2"}
    settings = load_settings(PdSettings, {"name": "m1", "data_dir": tmp_path, "members": {"m1": member}})
    assert open_tls(settings, Role.PD) is None


def test_loopback() -> None:
    """What only this machine can reach."""
    for address in ("127.0.0.1:0", "[::1]:7100", "localhost:1", "127.255.0.1:2"):
        assert is_loopback(address)
    for address in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example.org:1", "[::ffff:10.0.0.1]:1"):
        assert not is_loopback(address)
