"""Tokens of another issuer (OpenID Connect): whom they name, by the public keys that the issuer publishes. No I/O.

What holds: only RS256, ES256 and EdDSA count, each with a key of its kind, so neither `none` nor a public key as the secret of
an HMAC does; issuer, audience and time are checked; a client's name begins with the issuer's prefix and a colon, which no
certificate has. Keys that cannot be used change nothing: those before stay in force.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from rangelog_core.errors import ConfigInvalid, InvalidArgument, Unauthorized, Unavailable
from rangelog_core.ids import check_name
from rangelog_core.rights import SUBJECT_SEPARATOR, check_client_name
from rangelog_core.tokens import CLOCK_SKEW_S

KINDS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "Ed25519": "OKP"}
"""The algorithms that are accepted, each with the kind of its keys."""
KEYS_MAX = 100
KEYS_BYTES_MAX = 1024 * 1024
RSA_BITS_MIN = 2048

warnings.filterwarnings("ignore", message="EdDSA is deprecated")  # by RFC 9864; issuers send it

PublicKey = RSAKey | ECKey | OKPKey
_MALFORMED = (JoseError, ValueError, TypeError, KeyError, RecursionError)


class OidcIssuer:
    """One issuer, and the keys that it publishes. For one thread."""

    def __init__(self, name: str, audience: str, *, claim: str, prefix: str) -> None:
        """`claim`: has the client's name. `prefix`: of those names. Raises InvalidArgument: the prefix is no name."""
        self.name = name
        self.keys_version = 0
        """Raised whenever the keys change."""
        self.unknown_key: Callable[[], None] = lambda: None
        """Called where a token names a key that is not known: the issuer may have published it since."""
        self._audience = audience
        self._claim = claim
        self._prefix = check_name("issuer's prefix", prefix)
        self._keys: dict[str, PublicKey] = {}

    def take_keys(self, document: bytes) -> int:
        """Take a JWKS document in place of the one before; return how many keys can be used. Raises ConfigInvalid."""
        found: dict[str, PublicKey] = {}
        try:
            if len(document) > KEYS_BYTES_MAX:
                raise ValueError("too large")
            listed = json.loads(document)["keys"]
            for number, each in enumerate(listed[:KEYS_MAX]):
                key = _usable(each)
                if key is not None:
                    found[str(each.get("kid") or f"#{number}")] = key
        except _MALFORMED as error:
            raise ConfigInvalid(
                f"the keys of issuer {self.name} are no JWKS document: {type(error).__name__}"
            ) from None
        if not found:
            raise ConfigInvalid(f"issuer {self.name} publishes no key for one of {', '.join(KINDS)}")
        if {kid: key.thumbprint() for kid, key in found.items()} != {
            kid: key.thumbprint() for kid, key in self._keys.items()
        }:
            self._keys = found
            self.keys_version += 1
        return len(found)

    def principal_name(self, text: str, header: Mapping[str, Any], now_s: float) -> tuple[str, float]:
        """Return the name of a token's client, and when the token ends. Raises Unauthorized, Unavailable.

        Unavailable: the token's key is not known, and may be in a moment.
        """
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in KINDS:
            raise self._refused(f"its algorithm is none of {', '.join(KINDS)}")
        key = self._key(header.get("kid"), KINDS[algorithm])
        try:
            claims = jwt.decode(text, key, algorithms=[algorithm]).claims
        except _MALFORMED:
            raise self._refused("its signature is wrong") from None
        audience = claims.get("aud")
        if (
            self._audience not in (audience if isinstance(audience, list) else [audience])
            or claims.get("iss") != self.name
        ):
            raise self._refused(f"it is for another audience than {self._audience}")
        ends_s, begins_s = _seconds(claims.get("exp")), _seconds(claims.get("nbf", 0))
        if ends_s is None or begins_s is None:
            raise self._refused("it does not say when it begins and ends")
        if now_s >= ends_s + CLOCK_SKEW_S:
            raise self._refused("it has expired")
        if now_s < begins_s - CLOCK_SKEW_S:
            raise self._refused("it is not valid yet: are the clocks right?")
        subject = claims.get(self._claim)
        try:
            if isinstance(subject, str):
                return check_client_name(f"{self._prefix}{SUBJECT_SEPARATOR}{subject}"), ends_s
        except InvalidArgument:
            pass
        raise self._refused(f"its claim {self._claim} is no name of a client")

    def _key(self, key_id: object, kind: str) -> PublicKey:
        if not self._keys:
            raise Unavailable(f"the keys of issuer {self.name} are not known to this process yet: try again")
        of_kind = {kid: key for kid, key in self._keys.items() if key.key_type == kind}
        if key_id is None and len(of_kind) == 1:
            return next(iter(of_kind.values()))
        found = of_kind.get(key_id) if isinstance(key_id, str) else None
        if found is None and isinstance(key_id, str) and key_id not in self._keys:
            self.unknown_key()
            raise Unavailable(f"the token's key is not among those of issuer {self.name}, which are asked for again")
        if found is None:
            raise self._refused("its key does not go with its algorithm")
        return found

    def _refused(self, why: str) -> Unauthorized:
        return Unauthorized(f"the token is refused: {why}; get another one from {self.name}")


def _usable(each: Mapping[str, Any]) -> PublicKey | None:
    """Return a published key, None for one that is for something else, or of a kind that does not count. Raises _MALFORMED."""
    if each.get("use", "sig") != "sig":
        return None
    kind, curve = each.get("kty"), each.get("crv")
    public = {name: each[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in each}
    if kind == "RSA":
        found = RSAKey.import_key(public)
        return found if found.public_key.key_size >= RSA_BITS_MIN else None
    if kind == "EC" and curve == "P-256":
        return ECKey.import_key(public)
    if kind == "OKP" and curve == "Ed25519":
        return OKPKey.import_key(public)
    return None


def _seconds(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]
