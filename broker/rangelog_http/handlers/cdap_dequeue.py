"""One event of a stream after the other: …/consumer-id and …/dequeue, over the verb of consumers.

What holds: an id is the name of a group, so that any broker serves it, and it is of use to its principal alone. An event is
committed once its answer is written: it comes again where a broker dies in between, and not where the answer is lost on its
way, as in the original. 204 says that the group has committed all that is acked.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from rangelog import Client, GroupRecord
from rangelog.errors import GroupNotFound, MemberNotFound, RangelogError, Unavailable
from rangelog_broker.verbs import consume
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.consume import Consumes, owner_of
from rangelog_core.topic_names import TopicName
from rangelog_http.handlers.asked import Asked
from rangelog_http.handlers.records import RecordsAnswer, check_known
from rangelog_http.wire.cdap import CONSUMER_HEADER, answer_headers, choice_of, choice_of_id, consumer_id

SESSION_S = 3.0
"""After so long another broker may go on with a consumer."""
FIND_S = 30.0
"""How long an event that is there is waited for: until the group gives its shard to this broker."""
WAIT_S = 1.0
_HEADER = CONSUMER_HEADER.lower().encode()


class CdapDequeues:
    """The consumers of streams that were asked for here."""

    def __init__(self, client: Client, consumes: Consumes) -> None:
        self._client = client
        self._consumes = consumes
        self._known: OrderedDict[str, _Instance] = OrderedDict()  # the one that has been silent for longest first
        self._settling: set[asyncio.Task[None]] = set()

    async def make(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        """Answer with the id of a new consumer, which begins at the first event."""
        check_known(asked.query, frozenset({"mode", "size", "instance", "header"}))
        made = consumer_id(choice_of(asked.query), owner_of(asked.caller), stream, secrets.token_hex(16))
        joined = await self._join(asked.caller, stream, made)
        await self._consumes.end(asked.caller, made, joined)  # whichever broker is asked first begins
        return RecordsAnswer(200, "text/plain", made.encode(), ((_HEADER, made.encode()),))

    async def dequeue(self, stream: TopicName, asked: Asked) -> RecordsAnswer | None:
        """Answer with the next event of a consumer, or with 204: it has had all."""
        check_known(asked.query, frozenset())
        group = asked.header(_HEADER)
        choice = choice_of_id(group, owner_of(asked.caller), stream)
        instance = self._instance(group)
        async with instance.turn:
            await instance.settled()
            deadline_s, wait_s = asyncio.get_running_loop().time() + FIND_S, 0.0
            while asyncio.get_running_loop().time() < deadline_s:
                if not instance.consumer:
                    instance.consumer = await self._found(asked.caller, stream, group)
                with suppress(MemberNotFound):
                    found = await self._consumes.dequeue(
                        asked.caller, group, instance.consumer, records_max=1, wait_s=wait_s, wanted=choice.takes
                    )
                    if found.records:
                        await asked.write(_answer_of(stream, found.records[0]))
                        commit = self._consumes.commit(asked.caller, group, instance.consumer, found.batch)
                        instance.settling = task = asyncio.create_task(_settle(commit))
                        self._settling.add(task)
                        task.add_done_callback(self._settling.discard)
                        return None
                    if await self._consumes.is_at_end(asked.caller, group, instance.consumer):
                        return RecordsAnswer(204, "", b"")
                    wait_s = WAIT_S
                    continue
                instance.consumer = ""
            raise Unavailable("there are events, and another broker has the shards of this consumer: ask that one")

    # ---- inside

    def _instance(self, group: str) -> _Instance:
        """Return the consumer of an id; the one without a request for longest is forgotten, and would be found again."""
        found = self._known.pop(group, None) or _Instance()
        self._known[group] = found
        if len(self._known) > consume.CONSUMERS_MAX:
            self._known.popitem(last=False)
        return found

    async def _found(self, caller: Caller, stream: TopicName, group: str) -> str:
        """Join the group of an id that was given out. Raises MemberNotFound: it was not, or somebody has deleted the group."""
        try:
            await self._client.groups.describe(group)
        except GroupNotFound:
            raise MemberNotFound(f"stream {stream} has no such consumer: POST …/consumer-id gives one") from None
        return await self._join(caller, stream, group)

    async def _join(self, caller: Caller, stream: TopicName, group: str) -> str:
        return await self._consumes.join(caller, group, [str(stream)], session_s=SESSION_S, skip_trimmed=True)


class _Instance:
    """A consumer by its id. `consumer`: that of the verb; empty: it is to join."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.consumer = ""
        self.settling: asyncio.Task[None] | None = None

    async def settled(self) -> None:
        """Wait until the event before is committed, or cannot be: then it comes again."""
        if self.settling is not None:
            await asyncio.shield(self.settling)
            self.settling = None


async def _settle(commit: Coroutine[Any, Any, None]) -> None:
    with suppress(RangelogError):
        await commit


def _answer_of(stream: TopicName, event: GroupRecord) -> RecordsAnswer:
    return RecordsAnswer(200, "application/octet-stream", event.value, answer_headers(stream.name, event.headers))
