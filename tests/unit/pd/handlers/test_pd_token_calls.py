"""Calls on tokens: what is signed, what a repeat gets, and what a bound one may do on the placement driver."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RightMissing, Unauthorized, Unavailable
from rangelog_core.limits import NAME_LENGTH_MAX
from rangelog_core.net.principals import Role
from rangelog_core.rights import EVERY_CLIENT, KINDS, Verb, wire_verbs
from rangelog_core.tokens import BOUNDS_MAX, TEXT_LENGTH_MAX, Bounds
from rangelog_pd.handlers import tokens
from rangelog_pd.state.versions import LEVEL_AUDIT, LEVEL_TOKENS
from rangelog_pd.token_signer import TokenSigner
from rangelog_proto.v1 import pd_pb2, rights_pb2
from rangelog_proto.v1 import tokens_pb2 as pb
from rangelog_server_common.tokens.verifier import TokenPrincipal, TokenVerifier
from tests.unit.pd.handlers.test_pd_client_rights import call, enforced

HOUR_MS = 3_600_000


@pytest.fixture
def accepting(ready: Any) -> Any:
    """A leader that accepts tokens."""
    ready.machine.state.cluster_version = LEVEL_TOKENS
    ready.machine.state.cluster_id = "c"
    ready.driver.settings.tokens = True
    return ready


async def create(api: Any, name: str = "t", request_id: str = "", **more: Any) -> pb.CreateTokenResponse:
    fields = {"principal": "client:a", "lifetime_ms": HOUR_MS} | more
    request = pb.CreateTokenRequest(request_id=request_id or f"create-{name}", name=name, **fields)
    return await tokens.create_token(api.driver, request)


async def test_what_is_signed_counts_at_once_and_until_it_is_revoked(accepting: Any) -> None:
    """On this member by its state; a repeat gets the same text, from another leader an error that says what to do."""
    made = await create(accepting)
    verifier = TokenVerifier(accepting.driver.token_trust, wall_s=lambda: accepting.driver.wall_ms() / 1000)
    assert str(verifier.verify(made.text)) == "client:a" and verifier.verify(made.text).token_id == made.row.token_id
    assert (await create(accepting)).text == made.text
    second = await create(accepting, "u")
    told = await tokens.get_token_trust(accepting.driver, pb.GetTokenTrustRequest())
    assert told.version == 1 == accepting.driver.machine.state.tokens.version and len(told.keys) == 1
    await tokens.revoke_token(accepting.driver, pb.RevokeTokenRequest(request_id="r", name="t"))
    with pytest.raises(Unauthorized, match="was revoked"):
        verifier.verify(made.text)
    assert verifier.verify(second.text)
    told = await tokens.get_token_trust(accepting.driver, pb.GetTokenTrustRequest())
    assert told.version == 2 and list(told.revoked_ids) == [made.row.token_id]
    accepting.driver.token_signer = TokenSigner()  # another leader
    with pytest.raises(PreconditionFailed, match="pdctl token revoke"):
        await create(accepting, "u")
    third = await create(accepting, "v")
    assert verifier.verify(third.text) and verifier.verify(second.text)


async def test_pages(accepting: Any) -> None:
    """By id; by a name or id the tokens of that one."""
    made = [await create(accepting, f"t{number}") for number in range(5)]
    found, after = [], ""
    while True:
        page = await tokens.list_tokens(accepting.driver, pb.ListTokensRequest(page_token=after, page_size=2))
        found += [each.token_id for each in page.rows]
        after = page.next_page_token
        if not after:
            break
    assert found == sorted(each.row.token_id for each in made)
    for name in ("t3", made[3].row.token_id):
        listed = await tokens.list_tokens(accepting.driver, pb.ListTokensRequest(name=name))
        assert [each.name for each in listed.rows] == ["t3"]


async def test_what_is_refused(accepting: Any) -> None:
    """Before anything is signed: a wrong lifetime, name or principal, a low cluster version, a setting that is off."""
    for wrong in (
        {"lifetime_ms": 0},
        {"lifetime_ms": 1},
        {"lifetime_ms": 1 << 60},
        {"principal": "admin:a"},
        {"name": "a b"},
    ):
        with pytest.raises(InvalidArgument):
            await create(accepting, request_id="x", **{"name": "t", **wrong})
    accepting.driver.settings.tokens = False
    with pytest.raises(PreconditionFailed, match="tokens = true"):
        await create(accepting)
    accepting.driver.settings.tokens = True
    accepting.machine.state.cluster_version = LEVEL_AUDIT
    with pytest.raises(Unavailable, match="cluster version"):
        await create(accepting)
    assert not accepting.machine.state.tokens.tokens and not accepting.machine.state.tokens.keys


async def test_no_token_is_signed_that_no_process_would_take(accepting: Any) -> None:
    """One that is bound to many long names is refused with what to do, and nothing is kept; the longest that fits counts."""

    def bounds(length: int) -> list[rights_pb2.AccessRule]:
        names = [f"{'n' * length}/{number:03}{'t' * (length - 3)}" for number in range(BOUNDS_MAX)]
        verbs = wire_verbs(Verb.READ | Verb.APPEND)
        return [
            rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=KINDS["topic"], name=each, verbs=verbs) for each in names
        ]

    for length in (150, NAME_LENGTH_MAX):
        with pytest.raises(InvalidArgument, match="bind it to fewer resources"):
            await create(accepting, f"t{length}", only=bounds(length))
    assert not accepting.machine.state.tokens.tokens and not accepting.machine.state.tokens.keys
    made = await create(accepting, only=bounds(137))
    assert 8_000 < len(made.text) <= TEXT_LENGTH_MAX
    assert TokenVerifier(accepting.driver.token_trust, wall_s=lambda: accepting.driver.wall_ms() / 1000).verify(
        made.text
    )


async def test_bounds_of_calls(ready: Any) -> None:
    """They take away from what the rules give; lists are shorter; without enforced rights a bound token may do nothing."""
    await ready.create("mine", "c2")
    rule = rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=KINDS["stream"], name="mine", verbs=wire_verbs(Verb.READ))
    client = TokenPrincipal(Role.CLIENT, "a", bounds=Bounds([rule]), ends_s=1e12)
    describe = pd_pb2.DescribeStreamRequest(name="mine")
    with pytest.raises(RightMissing, match="pdctl acl enforce on"):
        await call(ready, "DescribeStream", describe, client)
    await enforced(ready, (Verb.READ | Verb.APPEND, "stream", "*"))
    assert (await call(ready, "DescribeStream", describe, client)).stream.name == "mine"
    with pytest.raises(RightMissing, match="bound to other things"):
        await call(ready, "DescribeStream", pd_pb2.DescribeStreamRequest(name="s"), client)
    answer = await call(ready, "ListStreams", pd_pb2.ListStreamsRequest(), client)
    assert [each.name for each in answer.streams] == ["mine"]
    writers = [pd_pb2.OpenWriterRequest(name="mine")]
    opened = await call(ready, "OpenWriters", pd_pb2.OpenWritersRequest(request_id="w", writers=writers), client)
    assert [each.error.code for each in opened.results] == ["RIGHT_MISSING"]
