"""Makes an authority, and certificates of principals, in memory. No file and no clock: the time comes in.

What holds: a certificate names one principal, servers also the DNS name of their role; it is valid from some minutes ago on,
for clocks that are behind.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net.principals import SERVER_ROLES, Principal, principal_uri, server_dns_name

CA_DAYS = 3_650
BACKDATED = timedelta(minutes=10)
"""Clocks that are behind by less accept a new certificate at once."""
_COMMON_NAME_LENGTH_MAX = 64  # of X.509


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def parse(cls, certificate: bytes, key: bytes) -> Pair:
        """Read both from PEM. Raises ConfigInvalid where they are none, or do not belong together."""
        try:
            read, private = (
                x509.load_pem_x509_certificate(certificate),
                serialization.load_pem_private_key(key, password=None),
            )
        except (ValueError, TypeError) as error:
            raise ConfigInvalid("no PEM of a certificate and its key") from error
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != read.public_key():
            raise ConfigInvalid("not a certificate and the key that belongs to it")
        return cls(read, private)

    @staticmethod
    def pem_of(certificate: x509.Certificate) -> bytes:
        """A certificate as PEM."""
        return certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.pem_of(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM, not encrypted."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_authority(now: datetime, *, days: int = CA_DAYS) -> Pair:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rangelog authority {os.urandom(4).hex()}")])
    return Pair(_self_signed(name, key, now, days), key)


def prolong_authority(authority: Pair, now: datetime, *, days: int = CA_DAYS) -> Pair:
    """Return the same authority, by name and key, with a later end: what either one signed is accepted by both."""
    return Pair(_self_signed(authority.certificate.subject, authority.key, now, days), authority.key)


def make_certificate(
    authority: Pair, principal: Principal, now: datetime, lifetime: timedelta, hosts: Sequence[str] = ()
) -> Pair:
    """Return a certificate of a principal, with a new key. `hosts`: by which curl or a browser reaches a server.

    Raises InvalidArgument: a host is neither an address nor a name.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject, names = names_of(principal, hosts)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if principal.role in SERVER_ROLES:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    made = (
        _builder(subject, authority.certificate.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=not list(subject))
        .sign(authority.key, hashes.SHA256())
    )
    return Pair(made, key)


def names_of(principal: Principal, hosts: Sequence[str] = ()) -> tuple[x509.Name, list[x509.GeneralName]]:
    """Return the subject of a principal's certificate, and its alternative names. Raises InvalidArgument, as above."""
    text = str(principal)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if len(text) <= _COMMON_NAME_LENGTH_MAX else [])
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(principal_uri(principal))]
    if principal.role in SERVER_ROLES:
        names += [x509.DNSName(server_dns_name(principal.role)), *map(_host_name, hosts)]
    return subject, names


def _self_signed(name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder(name, name, key, now, timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidArgument(
            f"host {host!r} is neither an address nor a name: write names beyond ASCII as xn--…"
        ) from error
