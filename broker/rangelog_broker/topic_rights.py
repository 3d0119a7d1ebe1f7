"""The rights on topics that an answer tells of, or that a request names besides its own resource.

What holds: a topic that was deleted is nobody's: no rule can give a right on it, and nothing of it is left to tell or change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from rangelog_core.errors import RightMissing, TopicNotFound
from rangelog_core.net.principals import Principal
from rangelog_core.net.routes import PdCalls
from rangelog_core.rights import Verb
from rangelog_proto.v1 import rights_pb2, topic_pb2
from rangelog_server_common.grpc_server import current_caller

CALL_TIMEOUT_S = 3.0
"""Of a call on the placement driver."""


class Rights(Protocol):
    """See RightsGuard."""

    async def require(self, principal: Principal | None, needs: Iterable[tuple[Verb, int, str, int]]) -> None:
        """Check that a client may do all of this: verbs, kind, and name or id. Raises RightMissing, Unavailable."""


class TopicRights:
    """The rights of the callers of one broker's services."""

    def __init__(self, rights: Rights, topics: PdCalls) -> None:
        self._rights = rights
        self._topics = topics

    async def require(self, context: Any, verbs: Verb, topic_ids: Iterable[int]) -> None:
        """Check that the caller may do one of the verbs to each topic that still exists. Raises RightMissing, Unavailable."""
        caller = current_caller(context, tls=False)
        await asyncio.gather(*(self._require(caller, verbs, each) for each in sorted(set(topic_ids))))

    async def require_groups(self, context: Any, verbs: Verb, groups: Iterable[str]) -> None:
        """Check that the caller may do one of the verbs to each group. Raises RightMissing, Unavailable."""
        caller = current_caller(context, tls=False)
        await self._rights.require(caller, [(verbs, rights_pb2.RESOURCE_KIND_GROUP, each, 0) for each in groups])

    async def _require(self, caller: Principal | None, verbs: Verb, topic_id: int) -> None:
        try:
            await self._rights.require(caller, [(verbs, rights_pb2.RESOURCE_KIND_TOPIC, "", topic_id)])
        except RightMissing:
            request = topic_pb2.ListShardsRequest(topic=topic_pb2.TopicReference(topic_id=topic_id), page_size=1)
            try:
                await self._topics.call(request, topic_pb2.ListShardsResponse, timeout_s=CALL_TIMEOUT_S)
            except TopicNotFound:
                return
            raise
