"""Commands on tokens: one is created, or revoked.

What holds: a refused command changes nothing; a token is checked by servers only once the key that signed it is in the state; a
revoked one stays, for servers to refuse it, until it would have expired anyhow.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.rights import CLIENT_START, check_client_name
from rangelog_core.tokens import LIFETIME_MS_MAX, LIFETIME_MS_MIN, TOKENS_MAX, check_bounds
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import tokens_pb2 as pb

KEYS_MAX = 1_000
"""Each leader that creates tokens makes one."""
KEPT_MS = 24 * 3_600_000
"""Rows are kept so long beyond their end: clocks differ, and somebody may want to see them."""
_ID_LENGTH, _KEY_LENGTH = 16, 32


def create_token(state: State, command: pb.PlacedCreateToken, now_ms: int) -> pb.CreateTokenResponse:
    """Keep a token and the key that signs it. Raises InvalidArgument, PreconditionFailed (its name is taken, or too many)."""
    row, key, tables = command.row, command.key, state.tokens
    check_row(row)
    if len(row.token_id) != _ID_LENGTH or len(key.public_key) != _KEY_LENGTH or key.key_id != row.key_id:
        raise InvalidArgument("a token is created with its id, and with the key that signs it")
    before = tables.live.get(row.name)
    if before is not None and tables.tokens[before].expires_ms >= row.created_ms:
        raise PreconditionFailed(
            f"there is a token {row.name!r}: take another name, or `pdctl token revoke {row.name}` before"
        )
    known = tables.keys.find(key.key_id)
    if known is not None and known.public_key != key.public_key:
        raise InvalidArgument("there is another key of this id")
    tables.forget(now_ms - KEPT_MS)
    if len(tables.tokens) >= TOKENS_MAX or (known is None and len(tables.keys) >= KEYS_MAX):
        raise PreconditionFailed(
            f"there are {len(tables.tokens):,} tokens of {len(tables.keys):,} keys, and the limits are {TOKENS_MAX:,} and "
            f"{KEYS_MAX:,}: those that have expired are forgotten after a day"
        )
    if known is None:
        tables.version += 1
    kept = copy_of(known) if known is not None else copy_of(key)
    kept.last_expires_ms = max(kept.last_expires_ms, row.expires_ms)
    tables.keys.put(key.key_id, kept)
    tables.tokens.put(row.token_id, row)
    return pb.CreateTokenResponse(row=row)


def revoke_token(state: State, request: pb.RevokeTokenRequest, now_ms: int) -> pb.RevokeTokenResponse:
    """Revoke a token by its name or id. One that was revoked stays so. Raises PreconditionFailed: no such token."""
    found = state.tokens.find(request.name)
    if found is None:
        raise PreconditionFailed(f"there is no token {request.name[:100]!r}: see `pdctl token list`")
    if not found.revoked_ms:
        found = copy_of(found)
        found.revoked_ms = max(now_ms, 1)
        state.tokens.tokens.put(found.token_id, found)
        state.tokens.version += 1
    return pb.RevokeTokenResponse(row=found)


def check_row(row: pb.TokenRow) -> None:
    """Raise InvalidArgument unless a token can have this name, principal, time, and what it is bound to."""
    check_name("token", row.name)
    if not row.principal.startswith(CLIENT_START):
        raise InvalidArgument(f"a token is for a client: name client:NAME, not {row.principal[:100]!r}")
    check_client_name(row.principal.removeprefix(CLIENT_START))
    check_bounds(row.only)
    if not LIFETIME_MS_MIN <= row.expires_ms - row.created_ms <= LIFETIME_MS_MAX:
        raise InvalidArgument("a token lives from one minute to 366 days: give --expires")
