"""Reports to the placement driver what groups have consumed that retain, or takes it back.

What holds:
- A report is of committed positions: nothing that is staged, handed out or read counts.
- Reports of a group follow changes, one every few seconds at most; after a takeover each group that retains is reported.
- A group that retains moves back once the placement driver knows where to, and no report of before it can come later and count.
- What is taken back is marked in the journal until the placement driver has heard of it, whoever owns the journal then.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.consumed_cut import consumed_cut
from rangelog_broker.groups.group import Group
from rangelog_core.errors import GroupNotFound, NotOwner, PreconditionFailed, RangelogError, TopicNotFound
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import group_pb2, topic_pb2

INTERVAL_S = 5.0
REPORT_TIMEOUT_S = 5.0

_log = logging.getLogger("rangelog.groups")


class ConsumedReports:
    """The reports of one journal's groups. For one event loop; `run` it as a task while something is noted."""

    def __init__(
        self,
        topics: PdCalls,
        groups: Mapping[str, Group],
        propose: Callable[[group_pb2.GroupCommand], Awaitable[None]],
        epoch: int,
    ) -> None:
        """`groups`: of the journal's machine. `epoch`: of the journal's owner."""
        self._topics = topics
        self._groups = groups
        self._propose = propose
        self._epoch = epoch
        self._noted: dict[str, None] = {}
        self._reported: dict[str, dict[int, dict[int, int]]] = {}
        self._number = 0
        self._moving = asyncio.Lock()
        """Held while a group moves back: what is reported meanwhile would be where it was."""
        self._errors: dict[str, RangelogError] = {}  # of the latest report of a group, where it failed

    def note(self, name: str) -> None:
        """What a group has consumed may have moved."""
        self._noted[name] = None

    def is_reported(self, name: str) -> bool:
        """Whether this owner has reported all topics of a group. Raises what the placement driver refuses."""
        error = self._errors.get(name)
        if error is not None and not error.retriable:
            raise error
        group = self._groups.get(name)
        return group is not None and self._reported.get(name, {}).keys() >= group.topics.keys()

    @asynccontextmanager
    async def lowered(self, name: str, reset: group_pb2.GroupReset) -> AsyncIterator[None]:
        """In the block a group is reset that may retain: where it goes back to is reported before.

        Raises PreconditionFailed (no such checkpoint), NotOwner, Unavailable: it must not be reset.
        """
        async with self._moving:
            group = self._groups.get(name)
            if group is not None and group.retains:
                lower = _lower(group, group.reset_positions(reset))
                for topic_id in list(group.topics):
                    cut = consumed_cut(lower, topic_id)
                    if cut and cut != self._reported.setdefault(name, {}).get(topic_id):
                        await self._lower(name, topic_id, cut)
            yield

    async def _lower(self, name: str, topic_id: int, cut: dict[int, int]) -> None:
        try:
            await self._call(name, topic_id, cut)
        except TopicNotFound:
            pass
        except PreconditionFailed as error:
            raise NotOwner(error.message) from error
        self._reported[name][topic_id] = cut

    async def run(self) -> None:
        """Report what was noted, until nothing is."""
        while self._noted:
            noted, self._noted = self._noted, {}
            for name in noted:
                self._errors.pop(name, None)
                try:
                    async with self._moving:
                        await self._report(name)
                except RangelogError as error:
                    self._errors[name] = error
                    _log.info("what group %s has consumed is not reported yet: %s", name, error)
                    self._noted[name] = None
            await asyncio.sleep(INTERVAL_S * random.uniform(0.8, 1.2))

    async def _report(self, name: str) -> None:
        group = self._groups.get(name)
        reported = self._reported.setdefault(name, {})
        if group is None:
            del self._reported[name]
            return
        await self._take_back(name, list(group.leaving), reported)
        for topic_id in list(group.topics) if group.retains else ():
            cut = consumed_cut(group, topic_id)
            if not cut or cut == reported.get(topic_id):
                continue
            try:
                await self._call(name, topic_id, cut)
            except (TopicNotFound, PreconditionFailed) as error:  # it is gone, or a later owner reports
                _log.info("what group %s has consumed of topic %d is not reported: %s", name, topic_id, error)
            reported[topic_id] = cut

    async def _take_back(self, name: str, leaving: Iterable[int], reported: dict[int, dict[int, int]]) -> None:
        done = group_pb2.GroupRetained()
        for topic_id in leaving:
            reported.pop(topic_id, None)
            try:
                await self._call(name, topic_id, None)
            except TopicNotFound:
                pass
            done.topic_ids.append(topic_id)
        if done.topic_ids:
            try:
                await self._propose(group_pb2.GroupCommand(group=name, retained=done))
            except GroupNotFound:
                pass

    async def _call(self, name: str, topic_id: int, cut: Mapping[int, int] | None) -> None:
        self._number += 1
        request = topic_pb2.ReportConsumedRequest(
            request_id=uuid.uuid4().hex,
            topic=topic_pb2.TopicReference(topic_id=topic_id),
            group=name,
            unsubscribe=cut is None,
            epoch=self._epoch,
            number=self._number,
        )
        for shard_id, offset in sorted((cut or {}).items()):
            request.cut.add(shard_id=shard_id, offset=offset)
        await self._topics.call(request, topic_pb2.ReportConsumedResponse, timeout_s=REPORT_TIMEOUT_S)


def _lower(group: Group, wanted: Mapping[ShardKey, int | None]) -> Group:
    """Return a group that is nowhere beyond where this one is, nor beyond where it is to be."""
    shards = dict(group.shards)
    for key, offset in wanted.items():
        shard = shards.get(key)
        if shard is not None:
            start = shard.facts.start_offset if shard.facts is not None else 0
            shards[key] = replace(shard, offset=min(group.position(shard), start if offset is None else offset))
    return Group(shards=shards, passes_trimmed=group.passes_trimmed)
