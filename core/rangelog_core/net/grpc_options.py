"""The options of gRPC for both ends: limits, keepalive, time limits. One module, so that both ends agree."""

from __future__ import annotations

from rangelog_core.limits import GRPC_MESSAGE_BYTES_MAX, KIB, MIB

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
    ("grpc.min_reconnect_backoff_ms", 500),  # for one attempt: a handshake with a busy or far process takes its time
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),  # connections to a cluster never use the machine's web proxy
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    ("grpc.max_metadata_size", 16 * KIB),  # a token and a trace at their limits; beyond it gRPC refuses calls by chance
    ("grpc.so_reuseport", 0),  # else two servers share one port, silently
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 1_024),
    ("grpc.server_handshake_timeout_ms", 5_000),  # of TLS, and of the first bytes: a silent connection is closed
)
