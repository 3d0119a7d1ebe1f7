"""Tokens as servers check them: whom they stand for, and every kind that is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, OKPKey

from rangelog_core.errors import InvalidArgument, RoleForbids, Unauthorized, Unavailable
from rangelog_core.net.principals import Port, Principal, Role
from rangelog_core.rights import EVERY_CLIENT, KINDS, Verb, check_client_name, wire_verbs
from rangelog_core.tokens import CLOCK_SKEW_S, TEXT_LENGTH_MAX, Bounds
from rangelog_pd.token_signer import TokenSigner
from rangelog_proto.v1 import rights_pb2
from rangelog_proto.v1 import tokens_pb2 as pb
from rangelog_server_common.tokens.admission import admit_caller
from rangelog_server_common.tokens.bounds import left
from rangelog_server_common.tokens.verifier import NO_TRUST, TokenTrust, TokenVerifier, bearer_text, claims_of

NOW_S = 1_900_000_000
CLUSTER = "cluster-1"
STREAM, TOPIC = KINDS["stream"], KINDS["topic"]


class Verifying:
    """A signer, a verifier that trusts it, and a clock."""

    def __init__(self) -> None:
        self.signer = TokenSigner()
        public = self.signer.public()
        self.trust = TokenTrust(CLUSTER, 1, {public.key_id: public.public_key}, frozenset())
        self.now_s = float(NOW_S)
        self.verifier = TokenVerifier(lambda: self.trust, wall_s=lambda: self.now_s)

    def row(self, principal: str = "client:a", lifetime_s: int = 3600, **more: Any) -> pb.TokenRow:
        return pb.TokenRow(
            token_id="0123456789abcdef",
            name="t",
            principal=principal,
            created_ms=NOW_S * 1000,
            expires_ms=(NOW_S + lifetime_s) * 1000,
            key_id=self.signer.public().key_id,
            **more,
        )

    def text(self, cluster: str = CLUSTER, **more: Any) -> str:
        found = self.signer.sign(self.row(**more), cluster)
        assert found is not None
        return found

    def refused(self, text: str, told: str) -> None:
        with pytest.raises(Unauthorized, match=told) as error:
            self.verifier.verify(text)
        assert len(text) < 20 or text not in error.value.message


@pytest.fixture
def at() -> Verifying:
    return Verifying()


def signed_by(key: Any, header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode({"typ": "rangelog+jwt", **header}, claims, key, algorithms=[header["alg"]])


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "") -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in (header, claims)]
    return ".".join((*parts, signature))


def test_a_token_stands_for_its_client(at: Verifying) -> None:
    """And for the role client, whatever it says; signing the same row again gives the same text."""
    found = at.verifier.verify(at.text())
    assert str(found) == "client:a" and found.role is Role.CLIENT and found.bounds is None
    assert at.text() == at.text() and at.verifier.verify(at.text()) == found
    assert str(at.verifier.verify(at.text(principal="client:sso:ann@example.org"))) == "client:sso:ann@example.org"
    for principal in ("admin:a", "pd:a", "a", "client:", "client:*", "client:a b", "*"):
        at.refused(at.text(principal=principal), "names no client")


def test_its_time_give_or_take_the_skew_of_clocks(at: Verifying) -> None:
    """Five minutes on both sides, to the second; what was accepted before is looked at again."""
    text = at.text(lifetime_s=3600)
    for now_s, valid in (
        (NOW_S, True), (NOW_S - CLOCK_SKEW_S, True), (NOW_S + 3600 + CLOCK_SKEW_S - 1, True),
        (NOW_S + 3600 + CLOCK_SKEW_S, False),
    ):  # fmt: skip
        at.now_s = now_s
        if valid:
            assert str(at.verifier.verify(text)) == "client:a"
        else:
            at.refused(text, "has expired")
    fresh = Verifying()
    fresh.now_s = NOW_S - CLOCK_SKEW_S - 1
    fresh.refused(fresh.text(), "not valid yet")
    fresh.now_s = NOW_S - CLOCK_SKEW_S
    assert fresh.verifier.verify(fresh.text())
    fresh = Verifying()
    fresh.now_s = NOW_S + 3600 + CLOCK_SKEW_S
    fresh.refused(fresh.text(), "has expired")


def test_revoked_ones_and_keys_that_are_gone(at: Verifying) -> None:
    """A token that was accepted is refused from the moment that its revocation is known: shown again, it stays refused."""
    text = at.text()
    known = at.verifier.verify(text)
    before = at.trust
    at.trust = TokenTrust(CLUSTER, 2, before.keys, frozenset({"0123456789abcdef"}))
    at.refused(text, "was revoked")
    with pytest.raises(Unauthorized, match="was revoked"):
        at.verifier.check(known)
    fresh = TokenVerifier(lambda: at.trust, wall_s=lambda: at.now_s)
    with pytest.raises(Unauthorized, match="was revoked"):
        fresh.verify(text)
    at.trust = TokenTrust(CLUSTER, 3, {}, frozenset())
    at.refused(text, "key is not trusted any more")


def test_keys_of_others_and_other_clusters(at: Verifying) -> None:
    """Another cluster's token is refused, also by the same keys; so is one by an unknown key, or under a known id."""
    at.refused(at.text(cluster="cluster-2"), "of another cluster")
    own, public = OKPKey.generate_key("Ed25519"), at.signer.public()
    claims = claims_of(at.row(), CLUSTER)
    at.refused(signed_by(own, {"alg": "Ed25519", "kid": public.key_id}, claims), "signature is wrong")
    old = claims | {"iat": NOW_S - 10_000}
    at.refused(signed_by(own, {"alg": "Ed25519", "kid": "unknown"}, old), "key that is not trusted")
    with pytest.raises(Unavailable, match="not known to this process yet"):  # a heartbeat may bring it
        at.verifier.verify(signed_by(own, {"alg": "Ed25519", "kid": "unknown"}, claims))
    blind = TokenVerifier(lambda: NO_TRUST, wall_s=lambda: at.now_s)
    with pytest.raises(Unavailable, match="does not know the cluster's keys yet"):
        blind.verify(at.text())


def test_algorithms_that_prove_nothing(at: Verifying) -> None:
    """`none` in every spelling, a public key as the secret of an HMAC, and other types of tokens."""
    public, claims = at.signer.public(), claims_of(at.row(), CLUSTER)
    for algorithm in ("none", "None", "NONE", "nOnE", ""):
        for signature in ("", at.text().rpartition(".")[2]):
            header = {"alg": algorithm, "kid": public.key_id, "typ": "rangelog+jwt"}
            at.refused(unsigned(header, claims, signature), "signed by Ed25519|not a whole token")
    shared = OctKey.import_key(public.public_key)
    at.refused(signed_by(shared, {"alg": "HS256", "kid": public.key_id}, claims), "signed by Ed25519")
    wrong = {"alg": "Ed25519", "kid": public.key_id, "typ": "JWT"}
    assert at.signer._key is not None
    at.refused(jwt.encode(wrong, claims, at.signer._key, algorithms=["Ed25519"]), "signed by Ed25519")


def test_texts_that_are_no_tokens(at: Verifying) -> None:
    """Truncated anywhere, changed anywhere, deeply nested, huge, or of other characters: refused, and quickly."""
    text = at.text()
    for end in (0, 1, 10, len(text) // 2, len(text) - 5, text.rindex("."), text.index(".") + 1):
        at.refused(text[:end], "token")
    header, claims, signature = text.split(".")
    for place in range(0, len(signature) - 1, 7):
        changed = signature[:place] + ("A" if signature[place] != "A" else "B") + signature[place + 1 :]
        at.refused(f"{header}.{claims}.{changed}", "signature is wrong")
    other = claims_of(at.row(principal="client:root"), CLUSTER)
    at.refused(f"{header}.{unsigned({}, other).split('.')[1]}.{signature}", "signature is wrong")
    at.refused("eyJ" + "x" * (1 << 20) + "..", f"limit is {TEXT_LENGTH_MAX:,}")
    deep = base64.urlsafe_b64encode(b"[" * 5_000).rstrip(b"=").decode()
    for bad in (
        f"{header}.{deep}.x",
        f"{deep}.{claims}.x",
        "é.é.é",
        "a.b.c.d.e",
        "...",
        "eyJ..",
        f"{header}..{signature}",
    ):
        at.refused(bad, "token")
    at.refused(unsigned({"alg": "Ed25519"}, {"iss": ["rangelog"]}), "issuer")
    at.refused(unsigned({"alg": "Ed25519"}, {"iss": "https://else"}), "issuer")


@pytest.mark.parametrize("field", ["exp", "nbf", "jti"])
def test_a_signed_token_without_end_begin_or_id(at: Verifying, field: str) -> None:
    """Our own keys sign no such thing; it is refused nevertheless, and so are odd numbers."""
    assert at.signer._key is not None
    header = {"alg": "Ed25519", "kid": at.signer.public().key_id}
    claims = claims_of(at.row(), CLUSTER)
    for value in (None, True, 1e400, "9999999999") if field != "jti" else (None, 5, ""):
        given = claims | {field: value}
        if value == "":
            assert at.verifier.verify(signed_by(at.signer._key, header, given)).token_id == ""
        else:
            at.refused(signed_by(at.signer._key, header, given), "lacks an id")
    del claims[field]
    at.refused(signed_by(at.signer._key, header, claims), "lacks an id")


def test_bounds_take_away_and_never_give(at: Verifying) -> None:
    """What is left is verbs of the named resources alone; what cannot be read is refused, and not passed over."""
    rules = [
        rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=STREAM, name="orders-*", verbs=wire_verbs(Verb.READ)),
        rights_pb2.AccessRule(
            principal=EVERY_CLIENT, kind=TOPIC, name="shop/t", verbs=wire_verbs(Verb.READ | Verb.APPEND)
        ),
    ]
    found = at.verifier.verify(at.text(only=rules))
    assert left(found, STREAM, "orders-1") == Verb.READ and left(found, TOPIC, "shop/t") == Verb.READ | Verb.APPEND
    for kind, name in ((STREAM, "order"), (STREAM, "*"), (TOPIC, "shop/t2"), (KINDS["group"], "orders-1")):
        assert not left(found, kind, name), name
    assert left(Principal(Role.CLIENT, "a"), STREAM, "x") & Verb.ADMIN
    assert at.signer._key is not None
    header = {"alg": "Ed25519", "kid": at.signer.public().key_id}
    for bad in (
        [],
        {},
        "x",
        [[[1], 1, "s"], 5],
        [[[99], 1, "s"]],
        [[[1], 99, "s"]],
        [[[], 1, "s"]],
        [[[1], 1, ""]],
        None,
    ):
        claims = claims_of(at.row(), CLUSTER) | {"only": bad}
        at.refused(signed_by(at.signer._key, header, claims), "bound to")
    for twice in (
        [rules[0], rules[0]],
        [rights_pb2.AccessRule(principal="client:a", kind=STREAM, name="s", verbs=[1])],
    ):
        with pytest.raises(InvalidArgument, match="bound"):
            Bounds(twice)


def test_who_a_caller_is(at: Verifying) -> None:
    """A certificate goes before a token; without one a token is needed; a secret names nobody, and tokens do in its place."""
    text, alice = at.text(), Principal(Role.ADMIN, "alice")

    def admitted(certificate: Principal | None, shown: str, **more: Any) -> Principal | None:
        options: dict[str, Any] = {
            "port": Port.RANGE_DATA,
            "secret": None,
            "verifier": at.verifier,
            "needs_token": False,
        }
        return admit_caller(certificate, shown, **options | more)

    assert str(admitted(None, text, needs_token=True)) == "client:a" == str(admitted(None, text))
    assert admitted(alice, text) == alice == admitted(alice, "") == admitted(alice, text, secret="s3cret")
    assert admitted(None, "s3cret", secret="s3cret") is None and admitted(None, "") is None
    assert str(admitted(None, text, secret="s3cret")) == "client:a"
    for certificate, shown, more in (
        (None, "", {"needs_token": True}), (None, "x", {"needs_token": True}),
        (None, "s3cret", {"needs_token": True, "secret": "s3cret"}), (None, text, {"needs_token": True, "verifier": None}),
        (None, text, {"secret": "s3cret", "verifier": None}), (alice, "", {"secret": "s3cret"}),
        (None, "é", {"secret": "s3cret"}), (None, "\ud800", {"secret": "s3cret"}),
        (alice, text[:-9], {"secret": "s3cret"}), (None, text[:-9], {}),
    ):  # fmt: skip
        with pytest.raises(Unauthorized):
            admitted(certificate, shown, **more)
    for port in (Port.PD_RAFT, Port.RANGE_CONTROL):
        with pytest.raises(RoleForbids, match="client:a may not use"):
            admitted(None, text, port=port)


def test_names_of_clients_never_collide_with_those_in_certificates() -> None:
    """An issuer's prefix ends in a colon, which no certificate's name has."""
    assert check_client_name("sso:auth0|123") == "sso:auth0|123"
    for bad in ("a b", "", ":a", "a:", "sso: x", "sso:é", "sso:" + "x" * 201, "s o:a", "sso:*", "*"):
        with pytest.raises(InvalidArgument):
            check_client_name(bad)


def test_the_token_in_a_header(at: Verifying) -> None:
    """Only Bearer, and only what has the form of a signed token."""
    assert bearer_text(f"Bearer {at.text()}") == at.text() == bearer_text(f"Bearer {at.text()}".encode())
    assert bearer_text("Bearer s3cret") == bearer_text(f"Basic {at.text()}") == bearer_text("") == ""
