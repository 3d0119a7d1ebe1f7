"""For whom a program calls: what goes with a call, whose calls those are, and who is believed."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core.errors import InvalidArgument, RoleForbids
from rangelog_core.net.acting import ACTING_KEY, WITHIN_KEY, acting_for, represented, with_principal
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Port, Principal, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.rights import EVERY_CLIENT, KINDS, Verb
from rangelog_core.tokens import Bounds
from rangelog_proto.v1 import rights_pb2

ALICE, OPS, BROKER = Principal(Role.CLIENT, "a"), Principal(Role.ADMIN, "ops"), Principal(Role.BROKER, "b1")


@pytest.mark.virtual
async def test_only_the_task_of_a_request_speaks_for_its_principal() -> None:
    """Not what it starts, which may serve others as well and outlive it; nor the task itself, once the request is over."""
    shown = {}

    async def started() -> None:
        shown["started"] = with_principal(())

    with acting_for(ALICE):
        shown["own"] = with_principal((("authorization", "x"),))
        await asyncio.create_task(started())
        with acting_for(OPS):
            shown["inner"] = with_principal(())
        with acting_for(None):
            shown["nobody"] = with_principal(())
    assert shown == {
        "own": (("authorization", "x"), (ACTING_KEY, "client:a")),
        "started": (),
        "inner": ((ACTING_KEY, "admin:ops"),),
        "nobody": (),
    }
    assert with_principal(()) == ()


@pytest.mark.virtual
async def test_nothing_is_said_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement driver would not know that it is a broker that says it, and refuse the call."""
    monkeypatch.setattr("rangelog_core.net.channels.certificates_of", lambda _: None)
    for tls, expected in ((None, ()), (TlsConfig("ca.pem"), ((ACTING_KEY, "client:a"),))):
        client = PdClient(["127.0.0.1:1"], tls=tls)
        with acting_for(ALICE):
            assert client._metadata("127.0.0.1:1") == expected
        await client.close()


@pytest.mark.parametrize("said", ["client:a", "client:*", "client:sso:ann@example.org", "admin:ops"])
def test_a_broker_is_believed(said: str) -> None:
    """Of everybody who may use its REST interface: by certificate, or by a token of this cluster or another issuer."""
    found = represented(BROKER, said, "", Port.PD_API)
    assert (str(found), found.through) == (said, BROKER)


@pytest.mark.parametrize("role", [each for each in Role if each is not Role.BROKER])
def test_nobody_else_is(role: Role) -> None:
    """Refused, not ignored; so is who shows no certificate."""
    with pytest.raises(RoleForbids, match=f"{role}:x may not call .* for another principal"):
        represented(Principal(role, "x"), "client:a", "", Port.PD_API)
    with pytest.raises(RoleForbids, match="without a certificate"):
        represented(None, "client:a", "", Port.PD_API)


@pytest.mark.parametrize("port", [each for each in Port if each is not Port.PD_API])
def test_no_other_port_takes_it(port: Port) -> None:
    """What a broker asks another one is its own work."""
    with pytest.raises(RoleForbids):
        represented(BROKER, "client:a", "", port)


@pytest.mark.parametrize(
    "said", ["client", "client:", "client:a b", "client:a\n", "broker:b2", "pd:x", ":a", "admin:sso:x", "root:a"]
)
def test_words_that_name_nobody(said: str) -> None:
    """Of a broker, too: what the audit log has is a name that rules can have."""
    with pytest.raises(InvalidArgument):
        represented(BROKER, said, "", Port.PD_API)


async def test_what_a_token_is_bound_to_goes_along() -> None:
    """Else a placement driver would let more pass than where the token is shown to it."""
    rule = rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=KINDS["topic"], name="n/t*", verbs=[rights_pb2.VERB_READ])
    with acting_for(ALICE, Bounds([rule])):
        said = dict(with_principal(()))
    found = represented(BROKER, said[ACTING_KEY], said[WITHIN_KEY], Port.PD_API)
    assert found.bounds is not None
    assert [found.bounds.left(KINDS["topic"], name) for name in ("n/t1", "n/u")] == [Verb.READ, Verb(0)]


@pytest.mark.parametrize(
    "within", ["{", "[]", "{}", "5", "[[[1], 2]]", '[[[1], 2, "n/t*", 5]]', "[[[9], 2, 7]]", "[" * 5_000]
)
def test_bounds_that_cannot_be_read(within: str) -> None:
    """They are not left out: that would let more pass."""
    with pytest.raises(InvalidArgument):
        represented(BROKER, "client:a", within, Port.PD_API)
