"""Tokens in the state machine: what is kept of them, what is refused, and that a snapshot keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_pd.state import tokens as module
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_AUDIT, LEVEL_TOKENS
from rangelog_proto.v1 import pd_state_pb2, rights_pb2
from rangelog_proto.v1 import tokens_pb2 as pb

DAY_MS = 24 * 3_600_000
BEGAN_MS = 1_700_000_000_000
"""Where the clock of the test begins."""


def key(number: int = 1, last: int = 0) -> pb.TokenKey:
    return pb.TokenKey(key_id=f"k{number}", public_key=bytes([number]) * 32, last_expires_ms=last)


def row(number: int, name: str = "t", *, key_number: int = 1, created_ms: int = BEGAN_MS, **more: Any) -> pb.TokenRow:
    fields = {"principal": "client:a", "expires_ms": created_ms + DAY_MS} | more
    return pb.TokenRow(token_id=f"{number:016x}", name=name, created_ms=created_ms, key_id=f"k{key_number}", **fields)


def create(pd: Any, made: pb.TokenRow, signer: pb.TokenKey | None = None) -> pb.TokenRow:
    command = pb.PlacedCreateToken(row=made, key=signer or key(int(made.key_id[1:])))
    return pd.do(pb.CreateTokenResponse, create_token=command).row


def revoke(pd: Any, name: str) -> pb.TokenRow:
    return pd.do(pb.RevokeTokenResponse, revoke_token=pb.RevokeTokenRequest(name=name)).row


def test_the_version_rises_with_keys_and_revocations_only(pd: Any) -> None:
    """Servers fetch nothing for a token by a key that they know; a revocation that changes nothing is none."""
    create(pd, row(1, "a"))
    create(pd, row(2, "b"))
    assert pd.state.tokens.version == 1
    create(pd, row(3, "c", key_number=2))
    assert pd.state.tokens.version == 2
    assert revoke(pd, "a").revoked_ms and list(pd.state.tokens.revoked) == [f"{1:016x}"]
    revoke(pd, f"{1:016x}")
    revoke(pd, "a")
    assert pd.state.tokens.version == 3
    with pytest.raises(PreconditionFailed, match="no token 'x'"):
        revoke(pd, "x")


def test_a_name_is_of_one_live_token(pd: Any) -> None:
    """It is free again once the token was revoked or has expired; the revoked one stays refused."""
    create(pd, row(1))
    with pytest.raises(PreconditionFailed, match="pdctl token revoke t"):
        create(pd, row(2))
    revoke(pd, "t")
    create(pd, row(2))
    assert pd.state.tokens.find("t").token_id == f"{2:016x}" and list(pd.state.tokens.revoked) == [f"{1:016x}"]
    create(pd, row(3, created_ms=BEGAN_MS + DAY_MS + 1))
    assert pd.state.tokens.find("t").token_id == f"{3:016x}"


def test_what_is_no_token(pd: Any) -> None:
    """It is refused, and nothing is changed."""
    of_stream = rights_pb2.RESOURCE_KIND_STREAM
    bound = rights_pb2.AccessRule(principal="client:b", kind=of_stream, name="s", verbs=[1])
    for bad in (
        row(1, "a b"), row(1, principal="admin:a"), row(1, principal="*"), row(1, principal="client:"),
        row(1, expires_ms=BEGAN_MS + 59_999), row(1, expires_ms=BEGAN_MS + 367 * DAY_MS), row(1, only=[bound]),
        pb.TokenRow(name="t"),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            create(pd, bad, key())
    for bad_key in (key(2), pb.TokenKey(key_id="k1", public_key=b"short")):
        with pytest.raises(InvalidArgument, match="the key that signs it"):
            create(pd, row(1), bad_key)
    create(pd, row(1))
    with pytest.raises(InvalidArgument, match="another key of this id"):
        create(pd, row(2, "b"), pb.TokenKey(key_id="k1", public_key=b"x" * 32))
    assert len(pd.state.tokens.tokens) == len(pd.state.tokens.keys) == pd.state.tokens.version == 1


def test_tokens_are_bounded_and_forgotten_a_day_after_their_end(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the limit holds; a key goes with the last token that it signed."""
    monkeypatch.setattr(module, "TOKENS_MAX", 2)
    create(pd, row(1, "a"))
    create(pd, row(2, "b", key_number=2, expires_ms=BEGAN_MS + 2 * DAY_MS))
    revoke(pd, "a")
    with pytest.raises(PreconditionFailed, match="limits are"):
        create(pd, row(3, "c"))
    pd.pass_ms(2 * DAY_MS)
    with pytest.raises(PreconditionFailed, match="limits are"):
        create(pd, row(3, "c", key_number=2))
    pd.pass_ms(1)
    create(pd, row(3, "c", key_number=2))
    assert list(pd.state.tokens.keys) == ["k2"] and not pd.state.tokens.revoked and len(pd.state.tokens.tokens) == 2


def test_a_snapshot_keeps_them_and_members_of_before_stop(pd: Any) -> None:
    """Rows, keys, revocations and the version; an earlier program reads neither the commands nor the snapshot."""
    create(pd, row(1, "a"))
    create(pd, row(2, "b", key_number=2))
    revoke(pd, "a")
    pd.state.cluster_version = LEVEL_TOKENS  # without which no leader proposes such commands
    data = pd.machine.snapshot()
    again = Machine()
    again.restore(data)
    tables = again.state.tokens
    assert tables.version == 3 and list(tables.revoked) == [f"{1:016x}"] and set(tables.keys) == {"k1", "k2"}
    assert tables.live == {"b": f"{2:016x}"} and again.snapshot() == data
    for action in ("create_token", "revoke_token"):
        command = pd_state_pb2.Command(**{action: getattr(pd_state_pb2.Command(), action)})
        getattr(command, action).SetInParent()
        assert needed_level(command) == LEVEL_TOKENS
    with pytest.raises(UnsupportedVersion):
        Machine(LEVEL_AUDIT).restore(data)


@pytest.mark.parametrize("damage", ["key", "version", "bounds"])
def test_a_snapshot_that_does_not_fit(pd: Any, damage: str) -> None:
    """A token without its key, keys without a version, bounds that are none: Corruption."""
    create(pd, row(1))
    tables = pd.state.tokens
    if damage == "key":
        tables.keys.remove("k1")
    elif damage == "version":
        tables.version = 0
    else:
        tables.tokens.put(f"{1:016x}", row(1, only=[rights_pb2.AccessRule(principal="client:b")]))
    with pytest.raises(Corruption):
        Machine().restore(pd.machine.snapshot())
