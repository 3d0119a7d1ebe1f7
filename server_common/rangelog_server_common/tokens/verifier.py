"""The check of tokens: whom one stands for, by keys and revocations that this process has. Offline: no call is made.

What holds: a text counts only with a signature by a key that is trusted, by an algorithm that goes with it, within its time
give or take CLOCK_SKEW_S, for this cluster, and while its id is not revoked; whatever else it is, it is refused, and its text
is in no message. A token is of role client, whatever it says. A token that was checked before costs a look-up.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from rangelog_core.errors import InvalidArgument, Unauthorized, Unavailable
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.token_sources import is_signed
from rangelog_core.rights import CLIENT_START, check_client_name
from rangelog_core.tokens import CLOCK_SKEW_S, ISSUER, TEXT_LENGTH_MAX, Bounds, bounds_of_list, listed
from rangelog_proto.v1 import tokens_pb2 as pb

ALGORITHM = "Ed25519"
"""Of the tokens of a cluster."""
TOKEN_TYPE = "rangelog+jwt"  # noqa: S105 - no secret
NEW_S = CLOCK_SKEW_S
"""A token that says it is younger may be of a key that this process hears of with the next heartbeat."""
KNOWN_MAX = 1_000
"""Tokens that were checked and are remembered."""

Claims = Mapping[str, Any]
_MALFORMED = (JoseError, ValueError, TypeError, KeyError, RecursionError, binascii.Error)


@dataclass(frozen=True, slots=True)
class TokenTrust:
    """The keys and revocations by which tokens of this cluster are checked. Keys: Ed25519, 32 bytes, by id."""

    cluster_id: str
    version: int
    keys: Mapping[str, bytes]
    revoked: frozenset[str]


NO_TRUST = TokenTrust("", 0, {}, frozenset())


@dataclass(frozen=True, slots=True)
class TokenPrincipal(Principal):
    """The client that a token stands for, and what limits the token beside its principal's rights."""

    bounds: Bounds | None = field(default=None, compare=False)
    """None: it is not bound to anything."""
    token_id: str = ""
    key_id: str = ""
    """Of this cluster's keys; empty: another issuer has signed it."""
    ends_s: float = 0.0
    """Wall clock."""


class Issuer(Protocol):
    """Another issuer of tokens."""

    name: str
    keys_version: int
    """Raised whenever its keys change."""

    def principal_name(self, text: str, header: Mapping[str, Any], now_s: float) -> tuple[str, float]:
        """Return the name of a token's client, and when the token ends. Raises Unauthorized, Unavailable."""


class TokenVerifier:
    """The check of one process. For one thread.

    Example: `TokenVerifier(lambda: trust).verify(text)`.
    """

    def __init__(
        self,
        trust: Callable[[], TokenTrust],
        issuers: Sequence[Issuer] = (),
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`trust`: returns what counts now. `issuers`: others whose tokens are accepted."""
        self._trust = trust
        self._issuers = {each.name: each for each in issuers}
        self._wall_s = wall_s
        self._known: dict[str, tuple[TokenPrincipal, int]] = {}  # with the versions of all issuers' keys

    def verify(self, text: str) -> TokenPrincipal:
        """Return whom a token stands for. Raises Unauthorized; Unavailable where the key may become known in a moment."""
        if len(text) > TEXT_LENGTH_MAX:
            raise Unauthorized(f"a token of {len(text):,} characters; the limit is {TEXT_LENGTH_MAX:,}")
        keys_version = sum(each.keys_version for each in self._issuers.values())
        known = self._known.get(text)
        if known is None or known[1] != keys_version:
            known = self._checked(text), keys_version
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[text] = known
        self.check(known[0])
        return known[0]

    def check(self, principal: TokenPrincipal) -> None:
        """Check again a token that counted before: its time, its key, and whether it was revoked. Raises Unauthorized."""
        if self._wall_s() >= principal.ends_s + CLOCK_SKEW_S:
            raise Unauthorized("the token has expired: ask for another one (`pdctl token create`)")
        if not principal.key_id:
            return
        trust = self._trust()
        if principal.key_id not in trust.keys:
            raise Unauthorized("the token's key is not trusted any more: ask for another one (`pdctl token create`)")
        if principal.token_id in trust.revoked:
            raise Unauthorized("the token was revoked: ask for another one (`pdctl token create`)")

    # ---- inside

    def _checked(self, text: str) -> TokenPrincipal:
        """Return whom a token stands for, of which only the time and the revocation are left to be checked."""
        try:
            found = jws.extract_compact(text.encode("ascii"))
            header, issuer = found.headers(), _claims(found.payload).get("iss")
        except _MALFORMED:
            raise _refused("it is not a whole token") from None
        if issuer == ISSUER:
            return self._of_cluster(text, header, _claims(found.payload))
        other = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if other is None:
            raise _refused("it is of an issuer that this process does not accept")
        name, ends_s = other.principal_name(text, header, self._wall_s())
        return TokenPrincipal(Role.CLIENT, name, ends_s=ends_s)

    def _of_cluster(self, text: str, header: Mapping[str, Any], unproved: Claims) -> TokenPrincipal:
        trust = self._trust()
        if header.get("alg") != ALGORITHM or header.get("typ") != TOKEN_TYPE:
            raise _refused(f"tokens of a cluster are signed by {ALGORITHM}")
        if not trust.cluster_id:
            raise Unavailable("this process does not know the cluster's keys yet: try again")
        if unproved.get("aud") != trust.cluster_id:
            raise _refused("it is of another cluster")
        key = trust.keys.get(str(header.get("kid")))
        if key is None:
            issued_s = unproved.get("iat")
            if isinstance(issued_s, int) and abs(self._wall_s() - issued_s) < NEW_S:
                raise Unavailable("the token's key is not known to this process yet: try again")
            raise _refused("it is signed by a key that is not trusted")
        try:
            claims = jwt.decode(text, _public(key), algorithms=[ALGORITHM]).claims
        except _MALFORMED:
            raise _refused("its signature is wrong") from None
        begins_s, ends_s = claims.get("nbf"), claims.get("exp")
        if type(begins_s) is not int or type(ends_s) is not int or not isinstance(claims.get("jti"), str):
            raise _refused("it lacks an id, or when it begins and ends")
        if self._wall_s() < begins_s - CLOCK_SKEW_S:
            raise _refused("it is not valid yet: are the clocks right?")
        return TokenPrincipal(
            Role.CLIENT, _client(claims), _bounds(claims), claims["jti"], str(header["kid"]), float(ends_s)
        )


def claims_of(row: pb.TokenRow, cluster_id: str) -> dict[str, Any]:
    """Return what a token of a cluster says."""
    claims = {
        "iss": ISSUER,
        "aud": cluster_id,
        "sub": row.principal,
        "jti": row.token_id,
        "iat": row.created_ms // 1000,
        "nbf": row.created_ms // 1000,
        "exp": row.expires_ms // 1000,
    }
    if row.only:
        claims["only"] = listed(row.only)
    return claims


def trust_of(message: pb.GetTokenTrustResponse) -> TokenTrust:
    """Return what a placement driver says that counts."""
    keys = {each.key_id: each.public_key for each in message.keys}
    return TokenTrust(message.cluster_id, message.version, keys, frozenset(message.revoked_ids))


def bearer_text(authorization: str | bytes) -> str:
    """Return the token in an Authorization header, "" without a signed one."""
    given = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization
    kind, _, text = given.partition(" ")
    return text if kind == "Bearer" and is_signed(text) else ""


def _public(key: bytes) -> OKPKey:
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(key).rstrip(b"=").decode()})


def _claims(payload: bytes) -> Claims:
    found = json.loads(payload)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _client(claims: Claims) -> str:
    subject = claims.get("sub")
    try:
        if isinstance(subject, str) and subject.startswith(CLIENT_START):
            return check_client_name(subject.removeprefix(CLIENT_START))
    except InvalidArgument:
        pass
    raise _refused("it names no client")


def _bounds(claims: Claims) -> Bounds | None:
    if "only" not in claims:
        return None
    try:
        return bounds_of_list(claims["only"])
    except InvalidArgument:
        raise _refused("what it is bound to cannot be read") from None


def _refused(why: str) -> Unauthorized:
    return Unauthorized(f"the token is refused: {why}; `pdctl token list` shows those of this cluster")
