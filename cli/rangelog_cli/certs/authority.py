"""A certificate authority in a directory: `ca.pem`, which every process gets, and `ca.key`, which nobody gets.

What holds: keys are written readable by their owner only, and a file is there whole or not at all; a certificate names one
principal, and is valid from some minutes ago on, for clocks that are behind. No process of a cluster has the authority's key.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from rangelog_cli.certs.making import BACKDATED, CA_DAYS, Pair, make_authority, make_certificate
from rangelog_core.errors import ConfigInvalid, InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.net.principals import ANY_NAME, Principal, Role
from rangelog_core.net.tls import TlsConfig

__all__ = [
    "BACKDATED",
    "CA_DAYS",
    "CERTIFICATE_DAYS",
    "LOOPBACK_HOSTS",
    "Authority",
    "describe",
    "parse_principal",
    "paths_of",
]

CERTIFICATE_DAYS = 90
LOOPBACK_HOSTS = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority of one cluster. Make it with `create`, find it with `open`."""

    directory: Path
    pair: Pair

    @property
    def certificate(self) -> x509.Certificate:
        """The authority's own."""
        return self.pair.certificate

    @classmethod
    def create(cls, directory: Path, *, days: int = CA_DAYS) -> Authority:
        """Make an authority in a directory. Raises PreconditionFailed where there is one."""
        for path in (_ca_path(directory), _ca_key_path(directory)):
            if path.exists():
                raise PreconditionFailed(
                    f"{path} is there already: use it with `rangelog certs issue`, or another --dir"
                )
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        pair = make_authority(_now(), days=days)
        _write(_ca_key_path(directory), pair.key_pem, 0o600)
        _write(_ca_path(directory), pair.certificate_pem, 0o644)
        return cls(directory, pair)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """Return the authority in a directory. Raises ConfigInvalid where there is none."""
        try:
            pair = Pair.parse(_ca_path(directory).read_bytes(), _ca_key_path(directory).read_bytes())
        except OSError as error:
            raise _no_authority(directory, error.strerror) from error
        except ConfigInvalid as error:
            raise _no_authority(directory, error.message) from error
        return cls(directory, pair)

    def issue(
        self, principal: Principal, out: Path, *, hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS
    ) -> TlsConfig:
        """Write a certificate and its key for a principal into `out`; return the three paths that its process is given.

        `hosts`: names and addresses by which programs other than rangelog's reach it, curl for example. An earlier pair of the
        same principal is replaced: the key first, and a process that reads in between goes on with the earlier ones.
        """
        made = make_certificate(self.pair, principal, _now(), timedelta(days=days), hosts)
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = paths_of(principal, out)
        _write(Path(found.key), made.key_pem, 0o600)
        _write(Path(found.cert), made.certificate_pem, 0o644)
        if out.resolve() != self.directory.resolve():
            _write(Path(found.ca), _ca_path(self.directory).read_bytes(), 0o644)
        return found


def paths_of(principal: Principal, directory: Path) -> TlsConfig:
    """Return where `issue` writes the files of a principal."""
    stem = f"{principal.role}-{'any' if principal.name == ANY_NAME else principal.name}"
    return TlsConfig(str(_ca_path(directory)), str(directory / f"{stem}.pem"), str(directory / f"{stem}.key"))


def parse_principal(role: str, name: str) -> Principal:
    """Return the principal of a role and a name; the name "*" is every process of the role. Raises InvalidArgument."""
    if role not in tuple(Role):
        raise InvalidArgument(f"no role {role!r}: there are {', '.join(Role)}")
    return Principal(Role(role), name if name == ANY_NAME else check_name("principal", name))


def describe(path: Path) -> dict[str, str]:
    """Return what a certificate says, in words. Raises ConfigInvalid."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigInvalid(
            f"{path} is not a certificate in PEM: {getattr(error, 'strerror', None) or 'see the file'}"
        ) from error
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        alternative = ", ".join(str(each.value) for each in names)
    except x509.ExtensionNotFound:
        alternative = ""
    return {
        "subject": found.subject.rfc4514_string(),
        "names": alternative,
        "issuer": found.issuer.rfc4514_string(),
        "valid from": f"{found.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC",
        "valid until": f"{found.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC",
        "serial number": f"{found.serial_number:x}",
    }


def _now() -> datetime:
    return datetime.now(UTC)


def _no_authority(directory: Path, reason: str | None) -> ConfigInvalid:
    return ConfigInvalid(f"no authority in {directory} ({reason}): make one with `rangelog certs init`")


def _ca_path(directory: Path) -> Path:
    return directory / "ca.pem"


def _ca_key_path(directory: Path) -> Path:
    return directory / "ca.key"


def _write(path: Path, data: bytes, mode: int) -> None:
    if path.exists() and path.read_bytes() == data:
        return  # no process is made to read it again
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
