"""The verifier of a process, by its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from rangelog_core.errors import ConfigInvalid
from rangelog_server_common.tls_settings import TlsSettings
from rangelog_server_common.tokens.jwks_refresh import JwksRefresh
from rangelog_server_common.tokens.oidc import OidcIssuer
from rangelog_server_common.tokens.verifier import TokenTrust, TokenVerifier


def open_verifier(
    stack: AsyncExitStack, settings: TlsSettings, trust: Callable[[], TokenTrust]
) -> TokenVerifier | None:
    """Return the verifier of tokens, None where the settings accept none. Called on the event loop of the process.

    `stack`: ends the refresh of an issuer's keys. `trust`: see TokenVerifier. Raises ConfigInvalid, InvalidArgument.
    """
    given = (settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks)
    if any(given) and not (all(given) and settings.tokens):
        raise ConfigInvalid("oidc_issuer, oidc_audience and oidc_jwks go together, with tokens = true")
    if not settings.tokens:
        return None
    if not all(given):
        return TokenVerifier(trust)
    issuer = OidcIssuer(
        settings.oidc_issuer, settings.oidc_audience, claim=settings.oidc_claim, prefix=settings.oidc_prefix
    )
    refreshing = asyncio.create_task(JwksRefresh(issuer, settings.oidc_jwks).run())
    stack.callback(refreshing.cancel)
    return TokenVerifier(trust, [issuer])
