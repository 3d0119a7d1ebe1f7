"""The page as part of a running placement driver. The web server and the templates are loaded only where there is a page."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from rangelog_core.net.tls import TlsConfig
    from rangelog_pd.settings import PdSettings
    from rangelog_server_common.tokens.verifier import TokenVerifier

_log = structlog.get_logger("page")


async def serve_page(
    stack: AsyncExitStack,
    settings: PdSettings,
    tls: TlsConfig | None,
    api_address: str,
    verifier: TokenVerifier | None = None,
) -> str:
    """Serve the page until `stack` ends, if the settings have an address for it; return the address.

    `tls`: that of the placement driver, with which the page is served. `api_address`: of this member. Raises Unavailable,
    ConfigInvalid.
    """
    if not settings.page_listen:
        return ""
    from rangelog_page.page_server import open_page

    address = await open_page(stack, settings, tls, api_address, verifier)
    _log.info("serving the page", page=f"{'https' if tls else 'http'}://{address}/")
    return address
