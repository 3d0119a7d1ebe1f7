"""Reports to the placement driver what groups have consumed that retain, or takes it back.

What holds:
- A report is of committed positions: nothing that is staged, handed out or read counts.
- Reports of a group follow changes, one every few seconds at most; after a takeover each group that retains is reported.
- What is taken back is marked in the journal until the placement driver has heard of it, whoever owns the journal then.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from rangelog_broker.groups.consumed_cut import consumed_cut
from rangelog_broker.groups.group import Group
from rangelog_core.errors import GroupNotFound, PreconditionFailed, RangelogError, TopicNotFound
from rangelog_proto.v1 import group_pb2, topic_pb2

INTERVAL_S = 5.0
REPORT_TIMEOUT_S = 5.0

_log = logging.getLogger("rangelog.groups")


class ConsumedReporter(Protocol):
    """The one call on topics that is used here; see TopicClient."""

    async def report_consumed(
        self, request: topic_pb2.ReportConsumedRequest, *, timeout_s: float
    ) -> topic_pb2.ReportConsumedResponse:
        """Note where a group stands."""


class ConsumedReports:
    """The reports of one journal's groups. For one event loop; `run` it as a task while something is noted."""

    def __init__(
        self,
        topics: ConsumedReporter,
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

    async def run(self) -> None:
        """Report what was noted, until nothing is."""
        while self._noted:
            noted, self._noted = self._noted, {}
            for name in noted:
                self._errors.pop(name, None)
                try:
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
        request = topic_pb2.ReportConsumedRequest(
            request_id=uuid.uuid4().hex,
            topic=topic_pb2.TopicReference(topic_id=topic_id),
            group=name,
            unsubscribe=cut is None,
            epoch=self._epoch,
        )
        for shard_id, offset in sorted((cut or {}).items()):
            request.cut.add(shard_id=shard_id, offset=offset)
        await self._topics.report_consumed(request, timeout_s=REPORT_TIMEOUT_S)
