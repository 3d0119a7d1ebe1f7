"""`rangelog healthcheck`: what a probe asks a process of the same pod, container or machine, and whether it may be believed.

What holds: an answer is "ok" only from the metrics port of a process that is healthy; with TLS, of the very process whose
certificate this is. Everything else (no answer in time, another certificate, other bytes) is a failure with a reason.
"""

from __future__ import annotations

import asyncio
import ssl

from rangelog_core.errors import InvalidArgument, RequestTimeout, Unavailable
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import SERVER_ROLES, principal_of_certificate
from rangelog_core.net.tls import TlsConfig, certificates_of

PATHS = {"live": "/livez", "ready": "/readyz"}
ANSWER_BYTES_MAX = 64 * 1024
_OK = b"HTTP/1.1 200 "


def ask(kind: str, metrics: str, tls: TlsConfig | None, timeout_s: float) -> str:
    """Return what a healthy process at "host:port" says. `kind`: live or ready.

    Raises Unavailable with the reasons where it is not healthy or not reached, RequestTimeout, InvalidArgument, ConfigInvalid.
    """
    split_address(metrics)
    if kind not in PATHS:
        raise InvalidArgument(f"{kind!r} is no question: ask {' or '.join(PATHS)}")
    head, body = asyncio.run(_exchange(PATHS[kind], metrics, tls, timeout_s))
    said = " ".join(body.decode("utf-8", "replace").split("\n")).strip()
    if not head.startswith(_OK):
        status = head.partition(b"\r\n")[0].decode("ascii", "replace")[:60]
        raise Unavailable(f"the process at {metrics} is not {kind} ({status}): {said}"[:2_000])
    return said


async def _exchange(path: str, metrics: str, tls: TlsConfig | None, timeout_s: float) -> tuple[bytes, bytes]:
    """Return head and body of the answer."""
    host, port = split_address(metrics)
    try:
        async with asyncio.timeout(timeout_s):
            secure = certificates_of(tls).now.client if tls is not None else None
            reader, writer = await asyncio.open_connection(host, port, ssl=secure, limit=ANSWER_BYTES_MAX)
            try:
                if tls is not None:
                    _check_peer(writer.get_extra_info("peercert"), tls, metrics)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) < ANSWER_BYTES_MAX and (part := await reader.read(ANSWER_BYTES_MAX)):
                    answer += part
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise RequestTimeout(f"nothing came from {metrics} within {timeout_s:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise Unavailable(
            f"no answer from {metrics} ({error.strerror or error}): is metrics_listen set to it?"
        ) from error
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return head, body


def _check_peer(certificate: dict[str, object] | None, tls: TlsConfig, metrics: str) -> None:
    """Raise Unavailable where this side is a server, and the other end is not the same one."""
    own = certificates_of(tls).now.principal
    peer = principal_of_certificate(certificate or {})
    if own is not None and own.role in SERVER_ROLES and peer != own:
        raise Unavailable(
            f"{peer} answers at {metrics}, and this is the certificate of {own}: ask its own metrics port"
        )
