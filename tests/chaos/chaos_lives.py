"""A stream is deleted under its writer and readers, and another is made with its name. Each life has its own history."""

from __future__ import annotations

import asyncio
import itertools
import time

import rangelog
from tests.chaos.chaos_cluster import SIDE_HOSTS
from tests.chaos.chaos_faults import OPENS_WITHIN_S, Fault
from tests.chaos.chaos_history import GONE, STATES
from tests.chaos.chaos_load import Client, StreamPlan
from tests.support.history import Deleted
from tests.support.waiting import eventually

PLAN = StreamPlan("brief", rate=400, record_bytes=200, range_bytes=64 * 1024, hot_retention_s=5.0, steady=False)
BEGIN_ANEW = ("windows", "starts")
"""Readers that resolve the name again and again: they are stopped before it means another stream."""
RECORDS = 300
NOTICED_WITHIN_S = 20.0
_numbers = itertools.count(1)


class DeletedUnderUse(Fault):
    """A stream that is written and read is deleted and made again by the same name: old clients end, new ones see the new."""

    name = "deleted-under-use"
    side = "all"
    hold_s = (0.5, 1.5)
    _old: tuple[Client, ...] = ()
    _new: tuple[Client, ...] = ()
    _anew: tuple[Client, ...] = ()
    _life = ""

    def inject(self) -> str:
        """See Fault."""
        self._old = self._begin()
        before = self._life
        self._delete()
        self._new = self._begin()
        return f"{before}, then {self._life}"

    def heal(self) -> None:
        """The old clients have been told; the second life ends as well."""
        old, self._old = self._old, ()
        new, self._new = self._new, ()
        try:
            if new:
                self._delete()
            self._expect_gone((*old, *new))
        finally:
            for each in (*old, *new, *self._anew):
                each.process.kill()

    def _begin(self) -> tuple[Client, ...]:
        """A life of the stream, with clients that are at work; returns those that must find out when it ends."""
        self._life = f"{PLAN.name}#{next(_numbers)}"
        self.system.create(PLAN, self._life)
        load = self.system.load
        writer = load.side_writer(PLAN, SIDE_HOSTS[0], noted_as=self._life)
        reader = load.side_reader(PLAN, SIDE_HOSTS[1], "once", noted_as=self._life)
        self._anew = tuple(
            load.side_reader(PLAN, SIDE_HOSTS[1], mode, noted_as=self._life, seed=self.dice.randrange(1 << 30))
            for mode in BEGIN_ANEW
        )
        eventually(
            lambda: min(each.pulse.records for each in (writer, reader, *self._anew)) > RECORDS,
            f"the clients of {self._life} do not get on",
            OPENS_WITHIN_S,
        )
        return (writer, reader)

    def _delete(self) -> None:
        asyncio.run(self._delete_stream())
        self.system.load.events.append(Deleted(self._life, time.monotonic(), certain=True))
        for each in self._anew:
            each.process.kill()

    async def _delete_stream(self) -> None:
        async with await rangelog.connect(self.system.cluster.connect_string) as client:
            await client.delete_stream(PLAN.name)

    def _expect_gone(self, clients: tuple[Client, ...]) -> None:
        """Each ends because its stream was deleted, and says so."""
        for each in clients:
            eventually(lambda each=each: not each.process.running, f"{each.name} outlives its stream", NOTICED_WITHIN_S)
            state = STATES[each.pulse.state]
            assert each.pulse.state == GONE, f"{each.name} is {state}, not gone: {each.process.last_words()}"
