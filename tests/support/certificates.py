"""Certificates for tests: of an authority in a directory, good ones and every bad kind."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from rangelog_cli.certs.authority import Authority, parse_principal
from rangelog_core.net.tls import TlsConfig


class TestCertificates:
    """An authority, and what it issues; `tls` makes each pair once."""

    __test__ = False

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        self.directory = directory
        self.authority = authority or Authority.create(directory / "authority")
        self.other = Authority.create(directory / "other")

    def tls(self, role: str, name: str = "x") -> TlsConfig:
        """A good one."""
        return self.authority.issue(parse_principal(role, name), self.directory / "good")

    def at(self, role: str, name: str, began_ago: timedelta, days: int, folder: str) -> TlsConfig:
        """One that was issued some time ago, for so many days from then on."""
        with mock.patch("rangelog_cli.certs.authority._now", lambda: datetime.now(UTC) - began_ago):
            return self.authority.issue(parse_principal(role, name), self.directory / folder, days=days)

    def expired(self, role: str, name: str = "x") -> TlsConfig:
        """One that has expired yesterday."""
        return self.at(role, name, timedelta(days=11), 10, "expired")

    def foreign(self, role: str, name: str = "x") -> TlsConfig:
        """One of another authority, whose holder trusts the right one."""
        made = self.other.issue(parse_principal(role, name), self.directory / "foreign")
        return TlsConfig(self.tls(role, name).ca, made.cert, made.key)

    def self_signed(self, role: str, name: str = "x") -> TlsConfig:
        """One that is signed with its own key."""
        principal = parse_principal(role, name)
        folder = Path(tempfile.mkdtemp(dir=self.directory))
        own = Authority.create(folder / "authority")
        with mock.patch(
            "cryptography.hazmat.primitives.asymmetric.ec.generate_private_key", lambda _curve: own.pair.key
        ):
            made = own.issue(principal, folder)
        return TlsConfig(self.tls(role, name).ca, made.cert, made.key)

    def distrusting(self, role: str, name: str = "x") -> TlsConfig:
        """A good one whose holder trusts another authority."""
        found = self.tls(role, name)
        return TlsConfig(str(self.directory / "other" / "ca.pem"), found.cert, found.key)


def replace_files(target: TlsConfig, source: TlsConfig) -> None:
    """Put the files of one configuration in the place of another's."""
    for to, path in ((target.ca, source.ca), (target.key, source.key), (target.cert, source.cert)):
        fresh = Path(f"{to}.fresh")
        fresh.write_bytes(Path(path).read_bytes())
        fresh.chmod(0o600)
        os.replace(fresh, to)
