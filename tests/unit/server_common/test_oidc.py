"""Tokens of another issuer: whom they name, what is refused, and how its keys change."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from rangelog_core.errors import ConfigInvalid, InvalidArgument, Unauthorized, Unavailable
from rangelog_core.tokens import CLOCK_SKEW_S
from rangelog_server_common.tls_settings import TlsSettings
from rangelog_server_common.tokens.jwks_refresh import JwksRefresh
from rangelog_server_common.tokens.oidc import KEYS_BYTES_MAX, OidcIssuer
from rangelog_server_common.tokens.settings import open_verifier
from rangelog_server_common.tokens.verifier import NO_TRUST, TokenVerifier
from tests.support.waiting import until

NOW_S = 1_900_000_000
URL, AUDIENCE = "https://sso.example.org/realms/x", "rangelog-test"
RSA = RSAKey.generate_key(2048, {"kid": "r"})
KEYS: dict[str, Any] = {
    "RS256": RSA,
    "ES256": ECKey.generate_key("P-256", {"kid": "e"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "o"}),
}
CLAIMS = {"iss": URL, "aud": AUDIENCE, "sub": "ann@example.org", "exp": NOW_S + 600, "iat": NOW_S, "nbf": NOW_S}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": [each.as_dict(private=False) for each in keys]}).encode()


def issuer(*keys: Any, claim: str = "sub") -> OidcIssuer:
    made = OidcIssuer(URL, AUDIENCE, claim=claim, prefix="sso")
    if keys:
        made.take_keys(jwks(*keys))
    return made


def signed(algorithm: str = "RS256", *, kid: str | None = None, key: Any = None, **claims: Any) -> str:
    key = key or KEYS[algorithm]
    header = {"alg": algorithm, "kid": kid or key.kid}
    told = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(header, told, key, algorithms=[algorithm])


def verifier(of: OidcIssuer, now_s: float = NOW_S) -> TokenVerifier:
    return TokenVerifier(lambda: NO_TRUST, [of], wall_s=lambda: now_s)


@pytest.mark.parametrize("algorithm", sorted(KEYS))
def test_each_algorithm_that_counts(algorithm: str) -> None:
    """The client is PREFIX:SUBJECT, which no certificate can be; a list of audiences is as good as one."""
    of = issuer(*KEYS.values())
    assert str(verifier(of).verify(signed(algorithm))) == "client:sso:ann@example.org"
    assert str(verifier(of).verify(signed(algorithm, aud=["else", AUDIENCE]))) == "client:sso:ann@example.org"
    named = issuer(*KEYS.values(), claim="preferred_username")
    assert str(verifier(named).verify(signed(algorithm, preferred_username="ann"))) == "client:sso:ann"


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"aud": "else"}, "audience"), ({"aud": None}, "audience"), ({"aud": [AUDIENCE + "x"]}, "audience"),
        ({"exp": NOW_S - CLOCK_SKEW_S}, "expired"), ({"exp": None}, "begins and ends"), ({"exp": True}, "begins and ends"),
        ({"exp": "9999999999"}, "begins and ends"), ({"exp": float("inf")}, "begins and ends|whole token"),
        ({"nbf": NOW_S + CLOCK_SKEW_S + 1}, "not valid yet"), ({"nbf": "x"}, "begins and ends"),
        ({"sub": None}, "no name"), ({"sub": ["a"]}, "no name"), ({"sub": "a b"}, "no name"), ({"sub": "*"}, "no name"),
        ({"iss": URL + "/"}, "issuer"),
    ],
)  # fmt: skip
def test_claims_that_do_not_fit(claims: dict[str, Any], told: str) -> None:
    """A signature by the right key is not enough."""
    with pytest.raises(Unauthorized, match=told):
        verifier(issuer(*KEYS.values())).verify(signed(**claims))


def test_the_skew_of_clocks() -> None:
    """Five minutes on both sides."""
    of = issuer(*KEYS.values())
    for now_s in (NOW_S - CLOCK_SKEW_S, NOW_S + 600 + CLOCK_SKEW_S - 1):
        assert verifier(of, now_s).verify(signed())
    for now_s in (NOW_S - CLOCK_SKEW_S - 1, NOW_S + 600 + CLOCK_SKEW_S):
        with pytest.raises(Unauthorized):
            verifier(of, now_s).verify(signed())


def test_algorithms_that_prove_nothing() -> None:
    """`none`, an HMAC with the public key as its secret, and an algorithm with a key of another kind."""
    of = issuer(*KEYS.values())
    parts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, CLAIMS)
    ]
    with pytest.raises(Unauthorized, match=r"none of|whole"):
        verifier(of).verify(".".join((*parts, "")))
    shared = OctKey.import_key(RSA.as_dict(private=False)["n"].encode())  # type: ignore[union-attr]
    with pytest.raises(Unauthorized, match="none of"):
        verifier(of).verify(signed("HS256", key=shared, kid="r"))
    with pytest.raises(Unauthorized, match="does not go with its algorithm"):
        verifier(of).verify(signed("ES256", kid="r"))
    with pytest.raises(Unauthorized, match="signature is wrong"):
        verifier(of).verify(signed("RS256", key=RSAKey.generate_key(2048, {"kid": "r"})))


def test_keys_that_change() -> None:
    """A new key counts once it is known, an old one no longer; bad documents change nothing."""
    of, asked = issuer(RSA), []
    of.unknown_key = lambda: asked.append(1)
    check, fresh = verifier(of), RSAKey.generate_key(2048, {"kid": "r2"})
    assert check.verify(signed())
    with pytest.raises(Unavailable, match="asked for again"):
        check.verify(signed(key=fresh))
    assert asked == [1]
    of.take_keys(jwks(fresh))
    assert of.keys_version == 2 and check.verify(signed(key=fresh))
    with pytest.raises(Unavailable):
        check.verify(signed())
    weak = jwks(RSAKey.generate_key(1024, {"kid": "s"}))
    shared = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "r2"}]}).encode()
    encrypting = json.dumps({"keys": [{**RSA.as_dict(private=False), "use": "enc"}]}).encode()
    for bad in (
        b"",
        b"[]",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": []}',
        weak,
        shared,
        encrypting,
        b" " * (KEYS_BYTES_MAX + 1),
    ):
        with pytest.raises(ConfigInvalid):
            of.take_keys(bad)
    assert of.keys_version == 2 and check.verify(signed(key=fresh))
    with pytest.raises(Unavailable, match="not known to this process yet"):
        verifier(issuer()).verify(signed())


class Served:
    """An HTTP server with one document."""

    def __init__(self) -> None:
        self.document, self.status, self.asked = b"", 200, 0
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked += 1
                self.send_response(served.status)
                if served.status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{served.port}/other")
                self.send_header("Content-Length", str(len(served.document)))
                self.end_headers()
                self.wfile.write(served.document)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/jwks"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


async def test_keys_by_url_and_by_file(tmp_path: Path) -> None:
    """Fetched and read anew; errors, redirects and huge answers leave the keys as they are; other URLs are refused."""
    served, of = Served(), issuer()
    try:
        served.document = jwks(RSA)
        refresh = JwksRefresh(of, served.url)
        assert not of.keys_version and await refresh.refresh() and verifier(of).verify(signed())
        for served.status, served.document in (
            (500, jwks(RSA)), (302, b""), (200, b"no"), (200, b" " * (KEYS_BYTES_MAX + 1)),
        ):  # fmt: skip
            before = served.asked
            assert not await refresh.refresh() and served.asked == before + 1
        assert of.keys_version == 1 and verifier(of).verify(signed())
    finally:
        served.close()
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(RSA))
    other = issuer()
    from_file = JwksRefresh(other, str(path))
    assert verifier(other).verify(signed())  # at once: a file is read before the port is open
    path.write_bytes(jwks(KEYS["ES256"]))
    assert await from_file.refresh() and verifier(other).verify(signed("ES256"))
    for bad in (
        "http://sso.example.org/jwks",
        "ftp://x/y",
        "file:///etc/passwd",
        "https://",
        str(tmp_path / "missing"),
    ):
        with pytest.raises(ConfigInvalid):
            JwksRefresh(issuer(), bad)


def counts(of: OidcIssuer, text: str) -> bool:
    try:
        return str(verifier(of).verify(text)) == "client:sso:ann@example.org"
    except Unavailable:
        return False


async def test_an_unknown_key_has_the_keys_fetched_at_once() -> None:
    """And no more often than once in a while, whatever tokens name."""
    served, of = Served(), issuer()
    try:
        served.document = jwks(RSA)
        running = asyncio.create_task(JwksRefresh(of, served.url, refresh_s=3600.0, again_s=0.01).run())
        async with asyncio.timeout(20):
            await until(lambda: of.keys_version)
            fresh = RSAKey.generate_key(2048, {"kid": "r2"})
            served.document = jwks(RSA, fresh)
            await until(lambda: counts(of, signed(key=fresh)))
        assert of.keys_version == 2
        running.cancel()
    finally:
        served.close()


async def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    """All three, with tokens, or none; a prefix that is no name is refused."""
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(RSA))
    good = {"tokens": True, "oidc_issuer": URL, "oidc_audience": AUDIENCE, "oidc_jwks": str(path)}
    async with AsyncExitStack() as stack:
        assert open_verifier(stack, TlsSettings(), lambda: NO_TRUST) is None
        assert open_verifier(stack, TlsSettings(tokens=True), lambda: NO_TRUST) is not None
        assert open_verifier(stack, TlsSettings(**good), lambda: NO_TRUST) is not None  # type: ignore[arg-type]
        for change in ({"tokens": False}, {"oidc_audience": ""}, {"oidc_jwks": ""}, {"oidc_issuer": ""}):
            with pytest.raises(ConfigInvalid, match="go together"):
                open_verifier(stack, TlsSettings(**good | change), lambda: NO_TRUST)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            open_verifier(stack, TlsSettings(**good, oidc_prefix="a:b"), lambda: NO_TRUST)  # type: ignore[arg-type]
