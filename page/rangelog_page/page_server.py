"""The port of the page: an HTTP server with limits over the application, and the page's own connections to the cluster."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack

from pdctl.session import Session
from rangelog import Client
from rangelog_core.errors import ConfigInvalid, Unavailable
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig, certificates_of
from rangelog_page.app import make_page_app
from rangelog_page.asking import TIMEOUT_S, Asking
from rangelog_page.rendering import Rendering
from rangelog_pd.settings import PdSettings
from rangelog_server_common.http_server import HttpServer
from rangelog_server_common.tokens.verifier import TokenVerifier
from rangelog_tier.encryption_keys import key_provider

CONNECTIONS_MAX = 128
HEAD_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 30
FETCHES_BYTES_MAX = 8 * 1024 * 1024
"""Of all live tails together."""
APPENDS_BYTES_MAX = 1024 * 1024
"""The least: the page appends nothing."""
GRACE_S = 0.2
"""Live tails wait for seconds: a placement driver that stops does not."""


async def open_page(
    stack: AsyncExitStack,
    settings: PdSettings,
    tls: TlsConfig | None,
    api_address: str,
    verifier: TokenVerifier | None = None,
) -> str:
    """Serve the page until `stack` ends; return its address. Raises Unavailable, ConfigInvalid."""
    own_tls = _own_tls(settings) if tls is not None else None
    bound = _bind(settings.page_listen)
    stack.callback(bound.close)
    endpoints = [api_address, *(each.api_address for name, each in settings.members.items() if name != settings.name)]
    client = Client(
        endpoints,
        token=settings.token,
        tls=own_tls,
        tier_url=None,
        encryption_keys=key_provider(settings.encryption_keys_dir, settings.encryption_kms_key_id),
        appends_bytes_max=APPENDS_BYTES_MAX,
        fetches_bytes_max=FETCHES_BYTES_MAX,
    )
    session = Session(
        endpoints=",".join(endpoints),
        token=settings.token,
        ca=own_tls.ca if own_tls else None,
        cert=own_tls.cert if own_tls else None,
        key=own_tls.key if own_tls else None,
        timeout_s=TIMEOUT_S,
    )
    asking = Asking(client, session, certificates_of(own_tls).now.principal if own_tls else None)
    stack.push_async_callback(asking.close)
    hosts = None if tls is not None else _hosts(settings)
    app = make_page_app(asking, Rendering(settings.name), token=settings.token, hosts=hosts, verifier=verifier)
    server = HttpServer(
        app,
        port=Port.PD_PAGE,
        tls=tls,
        tokens=verifier is not None,
        head_timeout_s=HEAD_TIMEOUT_S,
        idle_timeout_s=IDLE_TIMEOUT_S,
        grace_s=GRACE_S,
        connections_max=CONNECTIONS_MAX,
    )
    stack.push_async_callback(server.close)
    await server.start(bound)
    name = bound.getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def _own_tls(settings: PdSettings) -> TlsConfig:
    """Return the files by which the page asks the cluster. Raises ConfigInvalid for a role that may not look at it."""
    own = TlsConfig(settings.tls_ca, settings.page_cert, settings.page_key)
    principal = certificates_of(own).now.principal
    if principal is None or principal.role not in (Role.ADMIN, Role.CLIENT):
        raise ConfigInvalid(
            f"page_cert {own.cert} is the certificate of {principal}: the page needs one of role admin (or client, for a page "
            "without administration): `rangelog certs issue admin page`"
        )
    return own


def _hosts(settings: PdSettings) -> frozenset[str]:
    host, _ = split_address(settings.page_listen, port_min=0)
    return frozenset(each.lower().removesuffix(".") for each in (*settings.page_hosts, host))


def _bind(listen: str) -> socket.socket:
    host, port = split_address(listen, port_min=0)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"cannot serve the page on {listen}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise Unavailable(
            f"cannot serve the page on {listen}: {error.strerror or error}: choose another page_listen"
        ) from error
    return bound
