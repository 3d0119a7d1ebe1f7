"""The verifier of a process, by its settings."""

from __future__ import annotations

from collections.abc import Callable

from rangelog_server_common.tls_settings import TlsSettings
from rangelog_server_common.tokens.verifier import TokenTrust, TokenVerifier


def make_verifier(settings: TlsSettings, trust: Callable[[], TokenTrust]) -> TokenVerifier | None:
    """Return the verifier of tokens, None where the settings accept none. `trust`: see TokenVerifier."""
    return TokenVerifier(trust) if settings.tokens else None
