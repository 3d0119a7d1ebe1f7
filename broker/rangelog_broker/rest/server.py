"""The REST interface on the broker's event loop: its application behind an HTTP server with limits."""

from __future__ import annotations

from rangelog import Client
from rangelog_broker.rest.app import make_app
from rangelog_core.net.principals import Port
from rangelog_core.net.tls import TlsConfig
from rangelog_server_common.http_server import HEAD_TIMEOUT_S, HttpServer
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenVerifier

IDLE_TIMEOUT_S = 30
GRACE_S = 2.0


class RestServer(HttpServer):
    """The REST interface over a client. For one event loop."""

    def __init__(
        self,
        client: Client,
        *,
        token: str | None,
        tls: TlsConfig | None = None,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        rights: RightsGuard | None = None,
        verifier: TokenVerifier | None = None,
        quotas: QuotaGuard | None = None,
    ) -> None:
        """Raises ConfigInvalid where the files of `tls` cannot be used."""
        super().__init__(
            make_app(client, token=token, rights=rights, verifier=verifier, quotas=quotas),
            tls=tls,
            tokens=verifier is not None,
            port=Port.BROKER_REST,
            head_timeout_s=head_timeout_s,
            idle_timeout_s=IDLE_TIMEOUT_S,
            grace_s=GRACE_S,
        )
