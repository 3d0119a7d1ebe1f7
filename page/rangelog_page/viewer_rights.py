"""Whether a viewer of role client may read what a section shows, once rights are enforced.

What holds: with a certificate of role admin the page may more than such a viewer, so it asks the placement driver about the
viewer, by name, before it looks at anything; a list needs the right to read all that it may show. With a certificate of role
client the page may not ask: then every viewer sees what that client may read, and nothing else.
"""

from __future__ import annotations

from rangelog_core.errors import RoleForbids
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import PREFIX_END, Verb, right_missing, verbs_of
from rangelog_page.asking import TIMEOUT_S, Asking
from rangelog_page.page_query import PageQuery
from rangelog_proto.v1 import rights_pb2
from rangelog_server_common.tokens.bounds import check_unbound, left, token_bound

AGE_S = 1.0
"""What was taken from a viewer is seen no longer than that."""


async def require_read(
    asking: Asking, viewer: Principal | None, kind: rights_pb2.ResourceKind | None, query: PageQuery
) -> None:
    """Raise RightMissing where a viewer may not read the resource that a query names, or one of those that it lists.

    Raises what the placement driver's client raises.
    """
    if viewer is None or viewer.role is not Role.CLIENT or kind is None:
        return
    name = query.name or query.prefix + PREFIX_END
    principal = str(viewer)
    if not left(viewer, kind, name) & Verb.READ:
        raise token_bound(viewer, Verb.READ, kind, name)

    async def ask() -> rights_pb2.CheckRightsResponse:
        resource = rights_pb2.AccessResource(kind=kind, name=name)
        request = rights_pb2.CheckRightsRequest(principal=principal, resources=[resource])
        return await asking.pd.call(request, rights_pb2.CheckRightsResponse, timeout_s=TIMEOUT_S)

    try:
        answer = await asking.share(("rights", principal, kind, name), AGE_S, ask)
    except RoleForbids:
        return  # the page is a client itself
    if not answer.enforced:
        check_unbound(viewer)
    elif not verbs_of(answer.grants[0].verbs) & Verb.READ:
        raise right_missing(principal, Verb.READ, kind, name)
