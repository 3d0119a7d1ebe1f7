"""The keys of another issuer, read from a file or fetched from a URL: in the background, never while somebody waits.

What holds: a fetch has a time limit and a size limit, follows no redirect, and goes over TLS, but to this machine; what fails
leaves the keys as they are, and is logged once until it works again.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rangelog_core.errors import ConfigInvalid, RangelogError
from rangelog_server_common.tls_settings import is_loopback
from rangelog_server_common.tokens.oidc import KEYS_BYTES_MAX, OidcIssuer

REFRESH_S = 300.0
AGAIN_S = 10.0
"""After a failure, or where a token names a key that is not known: no more often than that."""
FETCH_TIMEOUT_S = 5.0

_log = logging.getLogger("rangelog.tokens")


class JwksRefresh:
    """Keeps the keys of one issuer. `run` it as a task of one event loop."""

    def __init__(
        self, issuer: OidcIssuer, source: str, *, refresh_s: float = REFRESH_S, again_s: float = AGAIN_S
    ) -> None:
        """`source`: the path of a file, or a URL. Raises ConfigInvalid: the file cannot be used, or the URL is without TLS."""
        self._issuer = issuer
        self._source = source
        self._refresh_s = refresh_s
        self._again_s = again_s
        self._wanted = asyncio.Event()
        self._problem = ""
        issuer.unknown_key = self._wanted.set
        self._is_url = "://" in source
        if not self._is_url:
            issuer.take_keys(_read(source))
            return
        parts = urlsplit(source)
        near = parts.scheme == "http" and is_loopback(f"{parts.hostname}:{parts.port or 80}")
        if (parts.scheme != "https" and not near) or not parts.hostname:
            raise ConfigInvalid(f"oidc_jwks is a file or an https:// URL, not {source[:200]!r}")

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            self._wanted.clear()
            worked = await self.refresh()
            await asyncio.sleep(self._again_s)
            if worked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._refresh_s if self._is_url else self._again_s):
                        await self._wanted.wait()

    async def refresh(self) -> bool:
        """Read or fetch the keys once; return whether that worked."""
        try:
            read = _fetch if self._is_url else _read
            before = self._issuer.keys_version
            count = self._issuer.take_keys(await asyncio.to_thread(read, self._source))
            if self._issuer.keys_version != before:
                _log.info("%d keys of issuer %s count", count, self._issuer.name)
            self._problem = ""
            return True
        except RangelogError as error:
            if error.message != self._problem:
                self._problem = error.message
                _log.warning("the keys of issuer %s stay as they are: %s", self._issuer.name, error.message)
            return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the URL is what the operator trusts. Overrides HTTPRedirectHandler.redirect_request."""


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(KEYS_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigInvalid(f"cannot read oidc_jwks {path}: {reason}") from error


def _fetch(url: str) -> bytes:
    try:
        with _OPENER.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            found: bytes = answer.read(KEYS_BYTES_MAX + 1)
            return found
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"cannot fetch {url}: {getattr(error, 'reason', None) or error}") from error
