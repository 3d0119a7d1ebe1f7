"""A certificate authority in a directory: `ca.pem`, which every process gets, and `ca.key`, which nobody gets.

What holds: keys are written readable by their owner only, and a file is there whole or not at all; a certificate names one
principal, and is valid from some minutes ago on, for clocks that are behind. No process of a cluster has the authority's key.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rangelog_core.errors import ConfigInvalid, InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.net.principals import ANY_NAME, SERVER_ROLES, Principal, Role, principal_uri, server_dns_name
from rangelog_core.net.tls import TlsConfig

CA_DAYS = 3_650
CERTIFICATE_DAYS = 90
BACKDATED = timedelta(minutes=10)
"""Clocks that are behind by less accept a new certificate at once."""
_COMMON_NAME_LENGTH_MAX = 64  # of X.509

LOOPBACK_HOSTS = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority of one cluster. Make it with `create`, find it with `open`."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, directory: Path, *, days: int = CA_DAYS) -> Authority:
        """Make an authority in a directory. Raises PreconditionFailed where there is one."""
        for path in (_ca_path(directory), _ca_key_path(directory)):
            if path.exists():
                raise PreconditionFailed(
                    f"{path} is there already: use it with `rangelog certs issue`, or another --dir"
                )
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rangelog authority {os.urandom(4).hex()}")])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _builder(name, name, key, days).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        made = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
        _write(_ca_key_path(directory), _key_pem(key), 0o600)
        _write(_ca_path(directory), _pem(made), 0o644)
        return cls(directory, made, key)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """Return the authority in a directory. Raises ConfigInvalid where there is none."""
        try:
            certificate = x509.load_pem_x509_certificate(_ca_path(directory).read_bytes())
            key = serialization.load_pem_private_key(_ca_key_path(directory).read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or "no PEM of a certificate and its key"
            raise ConfigInvalid(
                f"no authority in {directory} ({reason}): make one with `rangelog certs init`"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigInvalid(f"{_ca_key_path(directory)} is not a key of this program's authorities")
        return cls(directory, certificate, key)

    def issue(
        self, principal: Principal, out: Path, *, hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS
    ) -> TlsConfig:
        """Write a certificate and its key for a principal into `out`; return the three paths that its process is given.

        `hosts`: names and addresses by which programs other than rangelog's reach it, curl for example. An earlier pair of the
        same principal is replaced: the key first, and a process that reads in between goes on with the earlier ones.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        text = str(principal)
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, text)] if len(text) <= _COMMON_NAME_LENGTH_MAX else []
        )
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(principal_uri(principal))]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if principal.role in SERVER_ROLES:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names += [x509.DNSName(server_dns_name(principal.role)), *map(_host_name, hosts)]
        made = (
            _builder(subject, self.certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=len(text) > _COMMON_NAME_LENGTH_MAX)
            .sign(self.key, hashes.SHA256())
        )
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = paths_of(principal, out)
        _write(Path(found.key), _key_pem(key), 0o600)
        _write(Path(found.cert), _pem(made), 0o644)
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


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidArgument(
            f"--host {host!r} is neither an address nor a name: write names beyond ASCII as xn--…"
        ) from error


def _ca_path(directory: Path) -> Path:
    return directory / "ca.pem"


def _ca_key_path(directory: Path) -> Path:
    return directory / "ca.key"


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


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
