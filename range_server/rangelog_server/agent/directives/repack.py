"""RepackObjects: read some objects of the tier, write one in their place, without what was trimmed.

What holds: the directive names objects, not bytes: what they are is asked for at each attempt, and the placement driver takes
the new object only while all of them count. An attempt that ends anywhere changes nothing, and the next one goes on under the
same key, or under another where that holds other bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rangelog_core.errors import MissingExtra, PreconditionFailed
from rangelog_core.net.pages import goes_on
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, tier_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.tier.upload import Uploader, errors_of_building

if TYPE_CHECKING:
    from rangelog_tier.repacking import Repacker

PD_TIMEOUT_S = 10.0
_SPOILED_MAX = 100

_log = structlog.get_logger("tier")


class ObjectPacker:
    """The repacks of one range server."""

    def __init__(self, pd: PdClient, identity: DirectoryIdentity, tier: Uploader, temporary: Path) -> None:
        self._pd = pd
        self._identity = identity
        self._tier = tier
        self._temporary = temporary
        self._spoiled: dict[str, int] = {}  # task → the object whose key holds other bytes

    async def repack_objects(self, directive: pb.Directive) -> None:
        """Put one object in the place of the directive's. Raises PreconditionFailed when they do not all count, Corruption,
        ObjectNotFound for what cannot be read, StorageFull, Unavailable; a retry is safe."""
        try:
            from rangelog_tier.repacking import Repack
        except ImportError as error:
            raise MissingExtra("the extra 'tier' is not installed here: nothing can be repacked") from error
        action, stream_id = directive.repack_objects, directive.stream_id
        objects = await self._described(action.object_ids)
        ranges = await self._ranges(stream_id, objects[0].start_offset, objects[-1].end_offset)
        told = ",".join(f"{each.index}/{each.epoch}/{each.start_offset}" for each in ranges)
        with self._tier.rechecked_if_it_fails(), errors_of_building():
            packer = await self._packer(self._spoiled.pop(directive.task_id, 0))
            try:
                made = await packer.repack(Repack(stream_id, action.stream_name, objects, told))
            finally:
                if packer.spoiled_object_id and len(self._spoiled) < _SPOILED_MAX:
                    self._spoiled[directive.task_id] = packer.spoiled_object_id
        self._spoiled.pop(directive.task_id, None)
        _log.info("repacked", stream=action.stream_name, objects=len(objects), key=made.key, size_bytes=made.size_bytes)

    async def _described(self, object_ids: Sequence[int]) -> list[common_pb2.Object]:
        request = tier_pb2.FindObjectsRequest(object_ids=object_ids)
        answer = await self._pd.call(request, tier_pb2.FindObjectsResponse, timeout_s=PD_TIMEOUT_S)
        found = {each.object_id: each for each in answer.objects if each.state == common_pb2.OBJECT_STATE_COMMITTED}
        missing = [object_id for object_id in object_ids if object_id not in found]
        if missing or not object_ids:
            raise PreconditionFailed(f"{len(missing)} of the objects do not count any more: the task is about to end")
        return [found[object_id] for object_id in object_ids]

    async def _ranges(self, stream_id: int, start: int, end: int) -> list[common_pb2.Range]:
        """Return the ranges that have records of [start, end)."""
        found: list[common_pb2.Range] = []
        request = pb.ListRangesRequest(stream_id=stream_id, from_offset=start)
        while True:
            page = await self._pd.call(request, pb.ListRangesResponse, timeout_s=PD_TIMEOUT_S)
            found += [each for each in page.ranges if start < each.end_offset > each.start_offset < end]
            if not goes_on(page.more, page.ranges) or page.ranges[-1].end_offset >= end:
                return found
            request.from_index = page.ranges[-1].index + 1

    async def _packer(self, spoiled_object_id: int) -> Repacker:
        from rangelog_tier.repacking import Repacker

        store, tier_url = await self._tier.store_now()
        tier = self._tier

        class ServerRepacker(Repacker):
            """Notes commits for the manifest."""

            def _committing(self, stream_id: int) -> AbstractContextManager[None]:
                return tier.committing(stream_id)

        return ServerRepacker(
            self._pd, store, self._temporary, tier_url=tier_url,
            name=self._identity.name, incarnation=self._identity.incarnation, spoiled_object_id=spoiled_object_id,
        )  # fmt: skip
