"""A client's token: where it comes from, and over which connections it may go.

What holds: a callable or a file is asked again for each call and connection, so a new token needs no new client; a token that
was signed goes over no unencrypted connection to another machine, unless RANGELOG_INSECURE says so. No message has its text.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net.addresses import split_address
from rangelog_core.net.tls import TlsConfig
from rangelog_core.tokens import TEXT_LENGTH_MAX

TOKEN_ENV, TOKEN_FILE_ENV, INSECURE_ENV = "RANGELOG_TOKEN", "RANGELOG_TOKEN_FILE", "RANGELOG_INSECURE"
_KEPT_MAX = 64

Token = str | Callable[[], str]
"""A token, or what returns the one that is valid now."""
Metadata = tuple[tuple[str, str], ...]

_kept: dict[str, tuple[tuple[int, int, int], str]] = {}


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, which is read again whenever the file has changed.

    Example:
        ```python
        client = await rangelog.connect("10.0.0.1:7100", token=rangelog.TokenFile("/run/secrets/rangelog"))
        ```
    """

    path: str

    def __call__(self) -> str:
        """Return the token that is in the file now; while that cannot be read, the one before. Raises ConfigInvalid."""
        kept = _kept.get(self.path)
        try:
            status = os.stat(self.path)
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if kept is not None and kept[0] == seen:
                return kept[1]
            with open(self.path, encoding="ascii") as file:
                text = file.read(TEXT_LENGTH_MAX + 2).strip()
        except (OSError, ValueError) as error:
            if kept is not None:
                return kept[1]
            reason = getattr(error, "strerror", None) or "it is not ASCII text"
            raise ConfigInvalid(f"cannot read the token in {self.path}: {reason}") from None
        if not text and kept is not None:
            return kept[1]  # it is being written
        if not text:
            raise ConfigInvalid(f"there is no token in {self.path}")
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        _kept[self.path] = (seen, text)
        return text


def token_from_environment(env: Mapping[str, str] | None = None) -> Token | None:
    """Return RANGELOG_TOKEN, else the file that RANGELOG_TOKEN_FILE names, None where neither is set."""
    env = os.environ if env is None else env
    return chosen_token(env.get(TOKEN_ENV), env.get(TOKEN_FILE_ENV))


def chosen_token(token: Token | None, path: str | None) -> Token | None:
    """Return the token, else that in a file, None where neither is given."""
    return token or (TokenFile(path) if path else None)


def check_text(text: object) -> str:
    """Return the text of a token. Raises InvalidArgument, without it."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable():
        raise InvalidArgument("a token has only printable ASCII characters")
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidArgument(f"a token of {len(text):,} characters; the limit is {TEXT_LENGTH_MAX:,}")
    return text


def check_token(token: Token | None) -> None:
    """Raise InvalidArgument for a malformed token. A callable is evaluated on the first call."""
    if token is not None and not callable(token):
        check_text(token)


def text_for(token: Token | None, tls: TlsConfig | None, address: str) -> str:
    """Return the text to show to a process at an address, "" without a token. Raises ConfigInvalid, InvalidArgument."""
    if token is None:
        return ""
    text = check_text(token() if callable(token) else token)
    if tls is None and is_signed(text) and not _is_near(address) and not os.environ.get(INSECURE_ENV):
        raise ConfigInvalid(
            f"the token would go over an unencrypted connection to {address}: give the cluster's authority (RANGELOG_TLS_CA), "
            f"or set {INSECURE_ENV}=1"
        )
    return text


def metadata_for(token: Token | None, tls: TlsConfig | None, address: str) -> Metadata:
    """Return what a call to a process at an address carries. Raises as `text_for`."""
    text = text_for(token, tls, address)
    return (("authorization", f"Bearer {text}"),) if text else ()


def is_signed(text: str) -> bool:
    """Whether a text has the form of a signed token, a JWT: three parts, the first a JSON object in base64url."""
    return text.startswith("eyJ") and text.count(".") == 2


def _is_near(address: str) -> bool:
    """Whether only this machine can be at an address."""
    try:
        host, _ = split_address(address, port_min=0)
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (InvalidArgument, ValueError):
        return False
