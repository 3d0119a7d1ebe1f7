"""TLS of both ends: which files, the contexts made of them, and new contexts once the files have changed.

What holds: both ends show a certificate of the given authorities, and the role in it is checked by who opens or accepts the
connection (see principals), but for clients with a token, on ports that accept those; host names are not, a process is known by
its role. Files that change are read again by the next handshake; while those cannot be used, the ones read before stay in
force, and the log says why. Connections that exist stay. The text of a key is in no message.
"""

from __future__ import annotations

import logging
import math
import os
import ssl
import threading
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc

from rangelog_core.errors import ConfigInvalid, HandshakeFailed
from rangelog_core.key_files import is_open_to_others
from rangelog_core.net.bearer import BEARER_CERTIFICATE, BEARER_KEY
from rangelog_core.net.principals import SERVER_ROLES, Principal, Role, principal_of_certificate, server_dns_name
from rangelog_core.net.tls_rehearsal import no_password, own_certificate, rehearse

HANDSHAKE_TIMEOUT_S = 5.0
"""A peer that takes longer for a handshake is disconnected."""
LOOK_INTERVAL_S = 1.0
"""The least time between two looks at the files."""
SOON_S = 7 * 24 * 3600.0
"""A certificate is warned of when less of its time is left, and less than a quarter of it."""

CA_ENV, CERTIFICATE_ENV, KEY_ENV = "RANGELOG_TLS_CA", "RANGELOG_TLS_CERT", "RANGELOG_TLS_KEY"

_Fingerprint = tuple[tuple[int, int, int], ...]
_log = logging.getLogger("rangelog.tls")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Paths of PEM files: the trusted certificate authorities, this side's certificate (with its chain) and its private key.

    `rangelog certs issue` makes them. They are read when they are first used, and again when they change.

    Example:
        ```python
        tls = rangelog.TlsConfig("ca.pem", "client-alice.pem", "client-alice.key")
        client = await rangelog.connect("10.0.0.1:7100", tls=tls)
        client = await rangelog.connect("10.0.0.1:7100", tls=rangelog.TlsConfig("ca.pem"), token=token)
        ```

    Without a certificate a client shows a token.
    """

    ca: str
    cert: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not self.ca or bool(self.cert) != bool(self.key):
            raise ConfigInvalid(
                "TLS needs three files: of the certificate authority, this side's certificate and its key; give all, or none; "
                "a client that shows a token needs the first one only"
            )

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> TlsConfig | None:
        """Return what RANGELOG_TLS_CA, RANGELOG_TLS_CERT and RANGELOG_TLS_KEY name; None where none is set.

        Raises ConfigInvalid where only some are.
        """
        env = os.environ if env is None else env
        return cls.of_paths(*(env.get(name) or "" for name in (CA_ENV, CERTIFICATE_ENV, KEY_ENV)))

    def to_environment(self, env: MutableMapping[str, str]) -> None:
        """Set the three variables, for programs that are given no files."""
        env.update({CA_ENV: self.ca, CERTIFICATE_ENV: self.cert, KEY_ENV: self.key})

    @classmethod
    def of_paths(cls, ca: str | None, cert: str | None, key: str | None) -> TlsConfig | None:
        """Return the configuration of three paths, None where all are missing. Raises ConfigInvalid where only some are."""
        return cls(ca or "", cert or "", key or "") if ca or cert or key else None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The contents of the files when they were read."""

    principal: Principal | None
    """None: this side shows no certificate."""
    expires_s: float
    client: ssl.SSLContext
    server: ssl.SSLContext | None
    """None: this side cannot be a server."""
    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a gRPC client."""
        if self.principal is None:
            return grpc.ssl_channel_credentials(self.ca_pem, BEARER_KEY, BEARER_CERTIFICATE)
        return grpc.ssl_channel_credentials(self.ca_pem, self.key_pem, self.cert_pem)

    def server_configuration(self, *, tokens: bool = False) -> Any:
        """Return the files as a gRPC server takes them. `tokens`: it serves clients without a certificate of their own."""
        trusted = self.ca_pem + b"\n" + BEARER_CERTIFICATE if tokens else self.ca_pem
        return grpc.ssl_server_certificate_configuration([(self.key_pem, self.cert_pem)], trusted)


class Certificates:
    """The certificates of this process by their files, as they are now. For any thread. See `certificates_of`."""

    def __init__(self, config: TlsConfig) -> None:
        """Read the files. Raises ConfigInvalid."""
        self.config = config
        self.load_count = 0
        """Raised whenever other files are in force."""
        self._lock = threading.Lock()
        self._seen = _fingerprint(config)
        self._loaded = load(config)
        self._next_look_s = time.monotonic() + LOOK_INTERVAL_S

    @property
    def now(self) -> Loaded:
        """The contents in force: of the files, or of those before them while these cannot be used."""
        if time.monotonic() >= self._next_look_s:
            with self._lock:
                self._look()
        return self._loaded

    def require(self, role: Role) -> None:
        """Check that the certificate is one for a server of this role, which its clients accept. Raises ConfigInvalid."""
        config, found = self.config, self._loaded
        if found.principal is None:
            raise ConfigInvalid(f"a {role} needs a certificate: `rangelog certs issue {role} NAME`")
        if found.principal.role is not role:
            raise ConfigInvalid(
                f"{config.cert} is the certificate of {found.principal}, and a {role} needs one of its own role: "
                f"`rangelog certs issue {role} NAME`"
            )
        certificate = rehearse(config.cert, config.key, config.ca, as_server=True)
        if ("DNS", server_dns_name(role)) not in certificate.get("subjectAltName", ()):
            raise ConfigInvalid(
                f"{config.cert} has no DNS name {server_dns_name(role)}, by which clients know a {role}"
            )
        rehearse(config.cert, config.key, config.ca, as_server=False)

    def server_context(self, *, tokens: bool = False) -> ssl.SSLContext:
        """Return the context of a listener; each handshake takes the files that are in force then.

        `tokens`: clients without a certificate are let in, and have to show a token then. A certificate that is shown is
        checked as ever.
        """
        context = _server_context(self.config, tokens=tokens)
        context.sni_callback = self._choose
        return context

    def server_credentials(self, *, tokens: bool = False) -> grpc.ServerCredentials:
        """Return the same for a gRPC server."""
        given = [self.load_count]

        def changed() -> Any:
            loaded = self.now
            if given[0] == self.load_count:
                return None
            given[0] = self.load_count
            return loaded.server_configuration(tokens=tokens)

        return grpc.dynamic_ssl_server_credentials(
            self._loaded.server_configuration(tokens=tokens), changed, require_client_authentication=True
        )

    def _choose(self, connection: Any, _server_name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self.now.server  # its files: whether a certificate is asked for stays that of the listener

    def _look(self) -> None:
        self._next_look_s = time.monotonic() + LOOK_INTERVAL_S
        try:
            seen = _fingerprint(self.config)
            if seen == self._seen:
                return
            loaded = load(self.config)
            role, before = (each.principal.role if each.principal else None for each in (loaded, self._loaded))
            if role is not before:
                raise ConfigInvalid(f"{self.config.cert} is of {loaded.principal}, not of {self._loaded.principal}")
            if role in SERVER_ROLES:
                rehearse(self.config.cert, self.config.key, self.config.ca, as_server=True)
            if _fingerprint(self.config) != seen:
                return  # they are being replaced just now
        except ConfigInvalid as error:
            if self._next_look_s > self._complained_until_s:
                self._complained_until_s = self._next_look_s + 60 * LOOK_INTERVAL_S
                _log.error("the changed TLS files are not used, those read before stay in force: %s", error.message)
            return
        self._seen, self._loaded = seen, loaded
        self.load_count += 1
        _log.info("read the TLS files again: %s, valid until %s", loaded.principal, _utc(loaded.expires_s))

    _complained_until_s = 0.0


@lru_cache(maxsize=64)
def certificates_of(config: TlsConfig) -> Certificates:
    """Return the certificates of a configuration; one object per configuration and process. Raises ConfigInvalid."""
    return Certificates(config)


def load(config: TlsConfig) -> Loaded:
    """Read the files and check what this side can check. Raises ConfigInvalid, which names the file and what to do."""
    ca_pem = _read(config.ca)
    cert_pem, key_pem = (_read(config.cert), _read(config.key)) if config.cert else (b"", b"")
    principal, expires_s = _own_principal(config) if config.cert else (None, math.inf)
    try:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # the role is checked instead, by who connects
        client.verify_mode = ssl.CERT_REQUIRED
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        client.load_verify_locations(cafile=config.ca)
        if config.cert:
            client.load_cert_chain(config.cert, config.key, no_password)
        server = _server_context(config) if config.cert else None
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigInvalid(f"{config.ca} has no certificates of authorities: give a PEM file of them") from error
    return Loaded(principal, expires_s, client, server, ca_pem, cert_pem, key_pem)


def _own_principal(config: TlsConfig) -> tuple[Principal, float]:
    """Return whom this side's certificate names, and when it ends. Raises ConfigInvalid."""
    own = own_certificate(config.cert, config.key)
    try:
        principal = principal_of_certificate(own)
    except HandshakeFailed as error:
        raise ConfigInvalid(f"{config.cert}: {error.message}") from error
    expires_s = _check_time(config.cert, own)
    _warn_of_open_key(config.key)
    return principal, expires_s


def _server_context(config: TlsConfig, *, tokens: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL if tokens else ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # a resumed connection would keep a certificate that is no longer accepted
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.load_verify_locations(cafile=config.ca)
    context.load_cert_chain(config.cert, config.key, no_password)
    return context


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigInvalid(f"cannot read the TLS file {path}: {reason}") from error


def _fingerprint(config: TlsConfig) -> _Fingerprint:
    found = []
    for path in filter(None, (config.ca, config.cert, config.key)):
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigInvalid(f"cannot read the TLS file {path}: {reason}") from error
        found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _check_time(path: str, certificate: Mapping[str, Any]) -> float:
    """Return when a certificate ends. Raises ConfigInvalid where that is over, or it has not begun."""
    begins_s, ends_s = (ssl.cert_time_to_seconds(certificate[key]) for key in ("notBefore", "notAfter"))
    if time.time() >= ends_s:
        raise ConfigInvalid(f"{path} has expired at {_utc(ends_s)}: issue it again (`rangelog certs issue`)")
    if time.time() < begins_s:
        raise ConfigInvalid(f"{path} is valid from {_utc(begins_s)} on: is the clock of this machine right?")
    left_s = ends_s - time.time()
    if left_s < min(SOON_S, (ends_s - begins_s) / 4):
        _log.warning("%s expires at %s: issue it again", path, _utc(ends_s))
    return ends_s


def _warn_of_open_key(path: str) -> None:
    if is_open_to_others(os.stat(path)):
        _log.warning("the private key %s can be read by other users of this machine: chmod 600 %s", path, path)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
