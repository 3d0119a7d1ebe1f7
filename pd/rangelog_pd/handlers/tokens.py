"""Calls on tokens: administrators create, list and revoke them; servers fetch what they are checked against."""

from __future__ import annotations

import secrets
from bisect import bisect_right

from rangelog_core.errors import InvalidArgument, PreconditionFailed, Unavailable
from rangelog_core.net.principals import ADMINS
from rangelog_core.tokens import LIFETIME_MS_MAX, TEXT_LENGTH_MAX
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import SERVERS, Call, proposing
from rangelog_pd.state.tokens import check_row
from rangelog_pd.state.versions import LEVEL_TOKENS
from rangelog_proto.v1 import tokens_pb2 as pb

PAGE_SIZE_MAX = 1_000


async def create_token(driver: Driver, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
    """Sign a token for a client. Raises InvalidArgument, PreconditionFailed, Unavailable (the cluster version is too low)."""
    driver.check_level(LEVEL_TOKENS, "tokens")
    if not driver.settings.tokens:
        raise PreconditionFailed("no token is accepted: set `tokens = true` for the placement drivers and the servers")
    if not 0 < request.lifetime_ms <= LIFETIME_MS_MAX:
        raise InvalidArgument("a token lives from one minute to 366 days: give --expires")
    await driver.barrier()
    cluster_id = driver.token_trust().cluster_id
    if not cluster_id:
        raise Unavailable("the cluster has no id yet: try again")
    key, now_ms = driver.token_signer.public(), driver.wall_ms()
    row = pb.TokenRow(
        token_id=secrets.token_hex(8),
        name=request.name,
        principal=request.principal,
        only=request.only,
        created_ms=now_ms,
        expires_ms=now_ms + request.lifetime_ms,
        key_id=key.key_id,
    )
    check_row(row)
    length = len(driver.token_signer.sign(row, cluster_id) or "")
    if length > TEXT_LENGTH_MAX:
        raise InvalidArgument(
            f"the token would have {length:,} characters, and no process takes more than {TEXT_LENGTH_MAX:,}: bind it to fewer "
            "resources, by prefixes or a namespace"
        )
    command = pb.PlacedCreateToken(row=row, key=key)
    response = await driver.propose_request(pb.CreateTokenResponse, request.request_id, create_token=command)
    with driver.state() as state:
        text = driver.token_signer.sign(response.row, state.cluster_id)  # of a repeat: the row of the first try
    if text is None:
        raise PreconditionFailed(
            f"another leader has signed this token and is gone: `pdctl token revoke {response.row.token_id}`, and try again"
        )
    response.text = text
    return response


async def list_tokens(driver: Driver, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
    """Return one page of the tokens, by id."""
    await driver.barrier()
    size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    with driver.state() as state:
        rows = state.tokens.tokens
        ids = sorted(key for key in rows if not request.name or request.name in (key, rows[key].name))
        first = bisect_right(ids, request.page_token) if request.page_token else 0
        page = ids[first : first + size]
        return pb.ListTokensResponse(
            rows=[rows[key] for key in page], next_page_token=page[-1] if first + size < len(ids) else ""
        )


revoke_token = proposing("revoke_token", pb.RevokeTokenResponse)
"""Revoke a token. Raises PreconditionFailed where there is none."""


async def get_token_trust(driver: Driver, request: pb.GetTokenTrustRequest) -> pb.GetTokenTrustResponse:
    """Return the keys, and the tokens that were revoked."""
    await driver.barrier()
    with driver.state() as state:
        return pb.GetTokenTrustResponse(
            cluster_id=state.cluster_id,
            version=state.tokens.version,
            keys=state.tokens.keys.values(),
            revoked_ids=state.tokens.revoked,
        )


CALLS = (
    Call("CreateToken", create_token, ADMINS, audit=audited.named("token")),
    Call("ListTokens", list_tokens, ADMINS),
    Call("RevokeToken", revoke_token, ADMINS, audit=audited.named("token")),
    Call("GetTokenTrust", get_token_trust, SERVERS),
)
