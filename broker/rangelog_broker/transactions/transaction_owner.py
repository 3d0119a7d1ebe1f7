"""The owner's side of the transactions of one journal: time-outs, and the merges of what is committed.

What holds:
- Nothing is said or ordered before its entry is acked. An order may be repeated by this owner or the next one: who merges knows
  from the shard's log what is there already.
- A commit is merged at all its participants, ancestors before their descendants, until each has said so; then it is noted.
  The positions of groups are merged last: whoever is handed what follows finds the commit's records in their shards.
  The note waits a moment for another entry of the journal, and is before it; nothing waits for a note that waits.
- A transaction that hears nothing for its time-out is expired; after a takeover each has its whole time again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from rangelog.errors import NotOwner, RangelogError, TopicNotFound, Unavailable, WriterClosed, WriterFenced
from rangelog_broker.journal.part import JournalPart
from rangelog_broker.journal.sessions import Result
from rangelog_broker.transactions.coordinator import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    OPEN,
    UNKNOWN,
    WAITING,
    TransactionCoordinator,
)
from rangelog_broker.transactions.merging import MergeOrders
from rangelog_proto.v1 import transaction_pb2

DECIDED_WAIT_S = 3.0
"""Below the limit of one try of a caller."""
PAUSE_S = (0.01, 2.0)
TIMER_S_MAX = 60.0
NOTE_S = 0.05
"""How long the word that a commit is merged waits for another entry, with which it shares a batch of the journal."""
MERGED_SOON_S = 0.1
"""How long the answer of a commit that waits is held back, to say that the next transaction is begun."""
MERGES_MAX = 1_000
"""Commits that are merged at a time, of one journal."""
_GROUPS = 0
"""In place of a topic: participants that are groups."""

_log = logging.getLogger("rangelog.transactions")


class TransactionPlace(NamedTuple):
    """A transaction of a transactional id."""

    transactional_id: str
    number: int


class _Notes(NamedTuple):
    """Commands that wait to be written; then `written` has the futures of their results."""

    place: TransactionPlace
    commands: list[bytes]
    written: asyncio.Future[list[asyncio.Future[Result]]]


class TransactionOwner:
    """The transactions of one journal, as long as this broker owns it. For one event loop."""

    def __init__(self, journal: JournalPart[TransactionCoordinator], orders: MergeOrders) -> None:
        self.journal = journal
        self._orders = orders
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._heard_s: dict[
            str, tuple[int, float]
        ] = {}  # of ids: the open transaction's number, and when it was heard of
        self._due: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}  # the entry in `_due` that counts, of each id
        self._timer: asyncio.TimerHandle | None = None
        self._merging: dict[TransactionPlace, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MERGES_MAX)
        self._notes: list[_Notes] = []
        self._noted: set[TransactionPlace] = set()  # all is merged, and a note of that is under way
        self._ending: Counter[str] = Counter()  # ids, and how many commands that abort are under way
        self._undecided: dict[str, asyncio.Event] = {}  # ids whose latest commit waits, and somebody for it
        journal.machine.on_changed = self._changed
        for transactional_id in dict.fromkeys(name for name, _ in journal.machine.unfinished()):
            self.look(transactional_id)

    def close(self) -> None:
        """End timers and tasks. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._merging.values(), *self._tasks):
            task.cancel()

    # ---- commands

    async def check(self, participants: Sequence[transaction_pb2.Participant]) -> None:
        """See MergeOrders."""
        await self._orders.check(participants)

    async def own(self, command: transaction_pb2.TransactionCommand) -> transaction_pb2.TransactionResult:
        """Propose a command that does the same if it is repeated. Raises NotOwner, and what the machine refuses."""
        self._write_notes()
        try:
            result = await self.journal.propose_own(command.SerializeToString())
        except (WriterFenced, WriterClosed) as error:
            raise NotOwner("the coordinator's journal is another broker's", outcome_unknown=True) from error
        return transaction_pb2.TransactionResult.FromString(result)

    async def end(self, command: transaction_pb2.TransactionCommand, transactional_id: str) -> None:
        """As `own`, for a command that aborts."""
        self._ending[transactional_id] += 1
        try:
            await self.own(command)
        finally:
            self._ending[transactional_id] -= 1
            if not self._ending[transactional_id]:
                del self._ending[transactional_id]

    async def begin_behind(self, name: transaction_pb2.TransactionName) -> bool:
        """Begin the next transaction behind a commit that was proposed just before; return whether it is begun.

        Never where the commit is refused, or may be merged everywhere by then: what is finished is forgotten as the next one
        begins, and the program may have no answer yet.
        """
        if name.transactional_id in self._ending:
            return False
        if self.journal.machine.view(name).state in (UNKNOWN, ABORTED, COMMITTED) or self._is_noted(name):
            return False
        of = self.journal.machine.of(name.transactional_id)
        for each in of.transactions if of is not None else ():
            place = TransactionPlace(name.transactional_id, each.number)
            if each.number < name.number and not each.is_finished and place not in self._noted:
                return False  # it is merged first
        following = transaction_pb2.TransactionName()
        following.CopyFrom(name)
        following.number += 1
        begin = transaction_pb2.TransactionBegin(name=following)
        try:
            await self.own(transaction_pb2.TransactionCommand(begin=begin))
        except RangelogError:
            return False  # refused; or its outcome is not known, and the program begins it itself
        return True

    def _is_noted(self, name: transaction_pb2.TransactionName) -> bool:
        place = TransactionPlace(name.transactional_id, name.number)
        return place in self._noted or any(each.place == place for each in self._notes)

    async def begin_when_decided(self, name: transaction_pb2.TransactionName) -> bool:
        """As `begin_behind`, for a commit that waits: once the one before is merged, if that is soon."""
        try:
            async with asyncio.timeout(MERGED_SOON_S):
                await self.until_decided(name.transactional_id)
        except (TimeoutError, Unavailable):
            return False
        return await self.begin_behind(name)

    def heard(self, transactional_id: str, number: int) -> None:
        """Note that a transaction's program lives."""
        heard = self._heard_s.get(transactional_id)
        if heard is not None and heard[0] == number:
            self._heard_s[transactional_id] = number, self._loop.time()

    def _changed(self, transactional_id: str) -> None:
        if not self._closed:
            self._loop.call_soon(self.look, transactional_id)

    def look(self, transactional_id: str) -> None:
        """See to what is open or to be merged of an id: after each command is acked, and after a takeover."""
        if self._closed:
            return
        of = self.journal.machine.of(transactional_id)
        for transaction in of.transactions if of is not None else ():
            place = TransactionPlace(transactional_id, transaction.number)
            if of is not None and transaction.state == OPEN:
                self._watch(transactional_id, transaction.number, of.timeout_ms)
            elif transaction.state == COMMITTING and place not in self._merging:
                task = self._merging[place] = asyncio.create_task(self._merge(place))
                task.add_done_callback(partial(self._merged, place))

    async def until_decided(self, transactional_id: str) -> None:
        """Wait while the latest commit of an id waits for the merge of the one before. Raises Unavailable: ask again."""
        deadline = self._loop.time() + DECIDED_WAIT_S
        while (of := self.journal.machine.of(transactional_id)) is not None and of.latest is not None:
            if of.latest.state != WAITING:
                return
            event = self._undecided.setdefault(transactional_id, asyncio.Event())
            try:
                async with asyncio.timeout_at(deadline):
                    await event.wait()
            except TimeoutError:
                raise Unavailable(f"an earlier transaction of {transactional_id!r} is still being merged") from None

    # ---- time-outs

    def _watch(self, transactional_id: str, number: int, timeout_ms: int) -> None:
        """Expire a transaction. One entry stands for all transactions of an id, one after the other."""
        heard = self._heard_s.get(transactional_id)
        if heard is None or heard[0] != number:
            self._heard_s[transactional_id] = heard = number, self._loop.time()
        due_s = heard[1] + timeout_ms / 1000
        if due_s < self._due_s.get(transactional_id, math.inf):
            self._due_s[transactional_id] = due_s
            heapq.heappush(self._due, (due_s, transactional_id))
            if self._due[0] == (due_s, transactional_id):
                self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._due and self.journal.closed is None:
            wait_s = min(TIMER_S_MAX, max(0.0, self._due[0][0] - self._loop.time()))
            self._timer = self._loop.call_later(wait_s, self._expire_due)

    def _expire_due(self) -> None:
        now_s = self._loop.time()
        while self._due and self._due[0][0] <= now_s:
            noted_s, transactional_id = heapq.heappop(self._due)
            if self._due_s.get(transactional_id) != noted_s:
                continue  # an earlier one has taken its place
            del self._due_s[transactional_id]
            of = self.journal.machine.of(transactional_id)
            latest = of.latest if of is not None else None
            heard = self._heard_s.get(transactional_id)
            if of is None or latest is None or latest.state != OPEN:
                self._heard_s.pop(transactional_id, None)
            elif heard is None or heard[0] != latest.number or heard[1] + of.timeout_ms / 1000 > now_s:
                self._watch(transactional_id, latest.number, of.timeout_ms)
            else:
                del self._heard_s[transactional_id]
                place = TransactionPlace(transactional_id, latest.number)
                task = asyncio.create_task(self._expire(place, of.producer_id, latest.epoch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._arm()

    async def _expire(self, place: TransactionPlace, producer_id: int, epoch: int) -> None:
        name = transaction_pb2.TransactionName(
            transactional_id=place.transactional_id, number=place.number, producer_id=producer_id, epoch=epoch
        )
        expire = transaction_pb2.TransactionExpire(name=name)
        try:
            await self.end(transaction_pb2.TransactionCommand(expire=expire), place.transactional_id)
        except RangelogError as error:
            _log.info("transaction %d of %s is not expired yet: %s", place.number, place.transactional_id, error)
            self.look(place.transactional_id)

    # ---- merges

    def _merged(self, place: TransactionPlace, task: asyncio.Task[None]) -> None:
        self._merging.pop(place, None)
        self._noted.discard(place)
        if task.cancelled():
            return
        if task.exception() is not None:
            _log.error("the merge of transaction %d of %s failed", place.number, place.transactional_id,
                       exc_info=task.exception())  # fmt: skip
            return
        event = self._undecided.pop(place.transactional_id, None)
        if event is not None:
            event.set()
        if self.journal.closed is None:
            self.look(place.transactional_id)  # the next one may be decided by now

    async def _merge(self, place: TransactionPlace) -> None:
        """Let all participants merge a commit, and note it; until all have."""
        attempt = 0
        async with self._slots:
            while self.journal.closed is None:
                of = self.journal.machine.of(place.transactional_id)
                found = of.find(place.number) if of is not None else None
                if of is None or found is None or found.state != COMMITTING:
                    return
                left = [key for key, merged in found.participants.items() if not merged]
                name = transaction_pb2.TransactionName(
                    transactional_id=place.transactional_id,
                    epoch=found.epoch,
                    number=place.number,
                    producer_id=of.producer_id,
                )
                try:
                    await self._merge_all(name, left)
                    return
                except RangelogError as error:
                    _log.info("transaction %d of %s is not merged yet: %s", place.number, place.transactional_id, error)
                await asyncio.sleep(min(PAUSE_S[1], PAUSE_S[0] * 2.0 ** min(attempt, 8)))
                attempt += 1

    async def _merge_all(self, name: transaction_pb2.TransactionName, left: Iterable[tuple[int, int, str]]) -> None:
        """Merge records first, and positions when all of them are merged.

        As positions are merged others are handed what follows: what they make of it lies behind what is merged here.
        """
        by_topic = {topic_id: list(keys) for topic_id, keys in groupby(sorted(left), key=_topic_of)}
        positions = by_topic.pop(_GROUPS, None)
        merged: list[tuple[int, int, str]] = []
        results = await asyncio.gather(
            *(self._merge_topic(name, keys, merged) for keys in by_topic.values()), return_exceptions=True
        )
        if positions is not None and not any(results):
            results += await asyncio.gather(self._merge_topic(name, positions, merged), return_exceptions=True)
        failed = [each for each in results if each is not None]
        if merged:
            await self._note(name, merged, bool(failed))
        if failed:
            raise failed[0]

    async def _merge_topic(
        self,
        name: transaction_pb2.TransactionName,
        keys: list[tuple[int, int, str]],
        merged: list[tuple[int, int, str]],
    ) -> None:
        """Merge what was staged at the shards of one topic: those that have ended first, in the order of their ids.

        Topic 0 stands for groups: the positions that are staged in them. What is merged is added to `merged`, also when
        another one fails.
        """
        topic_id = keys[0][0]
        if not topic_id:
            for key in keys:
                await self._orders.merge_positions(name.producer_id, name.number, key[2])
                merged.append(key)
            return
        try:
            there = await self._orders.rows.known(topic_id, {key[1] for key in keys})
            rows = await self._orders.rows.together(topic_id, there)
        except TopicNotFound:
            merged += keys  # it was deleted, with all that was staged
            return
        merged += [key for key in keys if key[1] not in there]  # no such shard: nothing was staged
        keys = [key for key in keys if key[1] in there]
        ended = {row.shard_id for row in rows if row.ended_version}

        async def merge(key: tuple[int, int, str]) -> None:
            await self._orders.merge(name.producer_id, name.number, topic_id=topic_id, staging_id=key[1])
            merged.append(key)

        for key in keys:
            if key[1] in ended:
                await merge(key)
        current = [key for key in keys if key[1] not in ended]
        results = await asyncio.gather(*map(merge, current), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    async def _note(
        self, name: transaction_pb2.TransactionName, merged: Iterable[tuple[int, int, str]], at_once: bool
    ) -> None:
        """Note who has merged: with the next entry of the journal, after a moment, or at once if somebody waits for it."""
        commands: list[bytes] = []
        for topic_id, shard_id, group in merged:
            participant = transaction_pb2.Participant(topic_id=topic_id, shard_id=shard_id, group=group)
            note = transaction_pb2.TransactionMerged(name=name, participant=participant)
            commands.append(transaction_pb2.TransactionCommand(merged=note).SerializeToString())
        notes = _Notes(TransactionPlace(name.transactional_id, name.number), commands, self._loop.create_future())
        self._notes.append(notes)
        of = self.journal.machine.of(name.transactional_id)
        if at_once or of is None or of.latest is None or of.latest.state == WAITING:
            self._write_notes()
        elif len(self._notes) == 1:
            self._loop.call_later(NOTE_S, self._write_notes)
        for each in await notes.written:
            (await each).unwrap()

    def _write_notes(self) -> None:
        waiting, self._notes = self._notes, []
        for place, commands, written in waiting:
            self._noted.add(place)
            if not written.done():
                try:
                    written.set_result([self.journal.submit_own(each) for each in commands])
                except RangelogError as error:
                    written.set_exception(error)


def _topic_of(key: tuple[int, int, str]) -> int:
    return key[0]
