"""The settings of TLS that all servers have, and the rule that a port without TLS is on loopback.

What holds: a server that would listen beyond this machine without TLS does not start, unless `insecure = true` says that it
is to; then the log says so at every start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import structlog
from pydantic import model_validator
from pydantic_settings import BaseSettings

from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig, certificates_of

_log = structlog.get_logger("tls")


class TlsSettings(BaseSettings):
    """Base of the settings of servers."""

    tls_ca: str = ""
    """PEM file of the authorities whose certificates are accepted."""
    tls_cert: str = ""
    """PEM file of this server's certificate."""
    tls_key: str = ""
    """PEM file of its private key."""
    insecure: bool = False
    """Serve ports beyond loopback without TLS."""
    tokens: bool = False
    """Accept a token from a client without a certificate, on the ports that clients use."""
    oidc_issuer: str = ""
    """Another issuer whose tokens are accepted, as their claim `iss` has it."""
    oidc_audience: str = ""
    """What their claim `aud` must have."""
    oidc_jwks: str = ""
    """Its public keys: a file, or an https:// URL."""
    oidc_claim: str = "sub"
    """The claim with the client's name."""
    oidc_prefix: str = "oidc"
    """Its clients are called client:PREFIX:NAME."""

    @model_validator(mode="after")
    def _all_or_none(self) -> TlsSettings:
        given = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(given) and not all(given):
            raise ValueError("tls_ca, tls_cert and tls_key go together: give all three, or none")
        return self

    @property
    def tls(self) -> TlsConfig | None:
        """The files, None without TLS."""
        return TlsConfig.of_paths(self.tls_ca, self.tls_cert, self.tls_key)

    def listened(self) -> Iterator[tuple[str, str]]:
        """Yield (key, host:port) for each port that the server opens."""
        yield from ()


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach "host:port". A malformed address counts: it cannot be listened on."""
    try:
        host, _ = split_address(address, port_min=0)
    except InvalidArgument:
        return True
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_tls(settings: TlsSettings, role: Role) -> TlsConfig | None:
    """Return the TLS of a server that starts, its files checked, and log how it serves. Raises ConfigInvalid."""
    tls = settings.tls
    if tls is not None:
        certificates = certificates_of(tls)
        certificates.require(role)
        _log.info("TLS on all ports", certificate=str(certificates.now.principal), file=tls.cert)
        return tls
    exposed = [f"{key} {address}" for key, address in settings.listened() if address and not is_loopback(address)]
    if exposed and not settings.insecure:
        raise ConfigInvalid(
            f"{', '.join(exposed)} would be open to other machines without TLS: give tls_ca, tls_cert and tls_key "
            "(`rangelog certs` makes them), or set insecure = true"
        )
    if exposed:
        _log.warning(
            "INSECURE: anybody who reaches these ports can read and change everything; connections are not encrypted",
            ports=exposed,
            instead="give tls_ca, tls_cert and tls_key",
        )
    return None
