"""The subprotocols that a request for a WebSocket offers, one of which may hold the token of a browser's page. No I/O.

What holds: a token is in no answer and in no address; a browser has no other place for it.
"""

from __future__ import annotations

import base64
import binascii

from rangelog.errors import InvalidArgument

SUBPROTOCOL = "rangelog.v1"
TOKEN_START = "rangelog.bearer."  # noqa: S105 - no secret
"""Followed by the token in URL-safe base64, without its padding."""
OFFERS_MAX = 16


def take_token(headers: dict[bytes, bytes]) -> str:
    """Make a token among the offers the one of the request, unless it has one; return the subprotocol to choose, "" for none.

    Raises InvalidArgument where something is offered, and not SUBPROTOCOL.

    >>> headers = {b"sec-websocket-protocol": b"rangelog.v1, rangelog.bearer.c2VjcmV0"}
    >>> take_token(headers), headers[b"authorization"]
    ('rangelog.v1', b'Bearer secret')
    """
    text = headers.pop(b"sec-websocket-protocol", b"").decode("latin-1")
    if not text:
        return ""
    offers = [each.strip() for each in text.split(",", OFFERS_MAX)]
    if SUBPROTOCOL not in offers:
        raise InvalidArgument(f"the subprotocol is {SUBPROTOCOL}")
    for each in offers:
        if each.startswith(TOKEN_START) and b"authorization" not in headers:
            encoded = each[len(TOKEN_START) :]
            try:
                token = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
            except (binascii.Error, ValueError):
                raise InvalidArgument(f"{TOKEN_START} is followed by a token in URL-safe base64") from None
            headers[b"authorization"] = b"Bearer " + token
    return SUBPROTOCOL
