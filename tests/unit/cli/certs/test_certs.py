"""`rangelog certs`: an authority, certificates, their files."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from rangelog_cli.certs.authority import BACKDATED, Authority, describe, parse_principal, paths_of
from rangelog_cli.main import run
from rangelog_core.errors import ConfigInvalid, InvalidArgument, PreconditionFailed
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import Certificates, TlsConfig


def _mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An authority, a server's and a person's certificate; what is printed are the paths; keys are their owner's only."""
    home, out = tmp_path / "authority", tmp_path / "out"
    assert run(["certs", "init", "--dir", str(home)]) == 0
    assert "keep it away" in capsys.readouterr().out
    assert _mode(home / "ca.key") == 0o600 and _mode(home) == 0o700
    assert run(["certs", "issue", "range-server", "rs1", "--dir", str(home), "--out", str(out), "--days", "7"]) == 0
    ca, cert, key = capsys.readouterr().out.split()
    assert _mode(key) == 0o600 and {Path(each).parent for each in (ca, cert, key)} == {out}
    found = Certificates(TlsConfig(ca, cert, key))
    found.require(Role.RANGE_SERVER)
    assert str(found.now.principal) == "range-server:rs1"
    assert not (out / "ca.key").exists()
    assert run(["certs", "show", cert]) == 0
    shown = capsys.readouterr().out
    assert "rangelog://range-server/rs1, range-server.rangelog" in shown and "valid until" in shown
    assert run(["certs", "issue", "admin", "alice", "--dir", str(home)]) == 0
    ca, cert, key = capsys.readouterr().out.split()
    assert Path(cert).name == "admin-alice.pem" and Path(ca) == home / "ca.pem"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["issue", "root", "x"], "no role 'root'"),
        (["issue", "pd", "a/b"], "bad principal name"),
        (["issue", "pd", ""], "needs a name"),
        (["issue", "broker", "b", "--host", "grün.example"], "neither an address nor a name"),
        (["issue", "pd", "pd1", "--dir", "nowhere"], "no authority in nowhere .*: make one with `rangelog certs init`"),
        (["issue", "pd", "pd1", "--days", "0"], "--days"),
        (["init"], "is there already"),
        (["show", "ca.key"], "is not a certificate in PEM"),
        (["show", "nothing.pem"], "nothing.pem"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    if "--dir" not in arguments:
        Authority.create(tmp_path / "rangelog-certs")
    os.chdir(tmp_path / "rangelog-certs") if arguments[0] == "show" else None
    before = sorted(tmp_path.rglob("*"))
    assert run(["certs", *arguments]) in (1, 2)
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    import re

    assert re.search(said, printed.err), printed.err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_certificate_says(tmp_path: Path) -> None:
    """One URI; a server's names; backdated; of the authority; neither its key nor its name is used again."""
    authority = Authority.create(tmp_path)
    broker = Principal(Role.BROKER, "b1")
    made = authority.issue(broker, tmp_path, hosts=("b1.example.org", "10.0.0.7", "::1"), days=30)
    first = x509.load_pem_x509_certificate(Path(made.cert).read_bytes())
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["rangelog://broker/b1"]
    assert names.get_values_for_type(x509.DNSName) == ["broker.rangelog", "b1.example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    now = datetime.now(UTC)
    assert timedelta(minutes=5) < BACKDATED
    assert now - BACKDATED - timedelta(minutes=1) < first.not_valid_before_utc < now - timedelta(minutes=5)
    assert timedelta(days=29) < first.not_valid_after_utc - now < timedelta(days=30)
    first.verify_directly_issued_by(authority.certificate)
    authority.issue(broker, tmp_path, days=30)
    second = x509.load_pem_x509_certificate(Path(made.cert).read_bytes())
    assert second.serial_number != first.serial_number
    assert second.public_key().public_numbers() != first.public_key().public_numbers()  # type: ignore[union-attr]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_client_is_no_server(tmp_path: Path) -> None:
    """Its certificate has neither the names nor the use of a server's, whatever hosts are asked for."""
    made = Authority.create(tmp_path).issue(Principal(Role.CLIENT, "c"), tmp_path, hosts=("pd.rangelog",))
    assert "pd.rangelog" not in describe(Path(made.cert))["names"]
    with pytest.raises(ConfigInvalid, match="needs one of its own role"):
        Certificates(made).require(Role.PD)


def test_long_names_and_all_of_a_role(tmp_path: Path) -> None:
    """A common name is short; a name of 200 characters is in the URI. `*` has a file name of its own."""
    authority = Authority.create(tmp_path)
    long = parse_principal("client", "x" * 200)
    assert Certificates(authority.issue(long, tmp_path)).now.principal == long
    everyone = parse_principal("broker", "*")
    made = authority.issue(everyone, tmp_path)
    assert made == paths_of(everyone, tmp_path) and made.cert.endswith("broker-any.pem")
    assert Certificates(made).now.principal.is_called(Role.BROKER, "whatever")


def test_an_authority_stays(tmp_path: Path) -> None:
    """It is not written over, and a damaged one is not used."""
    authority = Authority.create(tmp_path)
    with pytest.raises(PreconditionFailed, match="is there already"):
        Authority.create(tmp_path)
    assert Authority.open(tmp_path).certificate == authority.certificate
    (tmp_path / "ca.key").write_text("garbage")
    with pytest.raises(ConfigInvalid, match="no PEM of a certificate and its key"):
        Authority.open(tmp_path)
    with pytest.raises(InvalidArgument):
        parse_principal("client", "..")
