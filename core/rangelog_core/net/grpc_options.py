"""The options of gRPC for both ends: limits, keepalive, TLS. One module, so that both ends agree."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from rangelog_core.errors import ConfigInvalid
from rangelog_core.limits import GRPC_MESSAGE_BYTES_MAX, MIB

_COMMON: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.http2.max_frame_size", 4 * MIB),  # large answers: 740 against 290 MB/s
    ("grpc.http2.write_buffer_size", 4 * MIB),
    ("grpc.http2.lookahead_bytes", 8 * MIB),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.enable_retries", 0),  # PdClient retries, with request ids
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),  # connections to a cluster never use the machine's web proxy
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # else two servers share one port, silently
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 1_024),
)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Paths of PEM files: the trusted certificate authorities and, for mutual TLS, this side's certificate and key."""

    ca: str
    cert: str | None = None
    key: str | None = None

    def _read(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise ConfigInvalid(f"cannot read the TLS file {path}: {error.strerror}") from error

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a gRPC client. Raises ConfigInvalid."""
        return grpc.ssl_channel_credentials(
            root_certificates=self._read(self.ca),
            private_key=self._read(self.key) if self.key else None,
            certificate_chain=self._read(self.cert) if self.cert else None,
        )

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a gRPC server that requires client certificates. Raises ConfigInvalid."""
        if not self.cert or not self.key:
            raise ConfigInvalid("a server needs a TLS certificate and key")
        return grpc.ssl_server_credentials(
            [(self._read(self.key), self._read(self.cert))],
            root_certificates=self._read(self.ca),
            require_client_auth=True,
        )

    def ssl_context(self, *, server: bool = False) -> ssl.SSLContext:
        """Return the TLS context of data-plane connections. Raises ConfigInvalid."""
        purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
        try:
            context = ssl.create_default_context(purpose, cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:  # ssl.SSLError is an OSError
            raise ConfigInvalid(f"the TLS files cannot be used: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if server:
            context.verify_mode = ssl.CERT_REQUIRED
        return context
