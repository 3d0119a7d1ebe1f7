"""Checks a history of a consumer group (T6, T4): it knows nothing of how the group works.

The history is what members did and what they were answered, in the order of one observer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Given(NamedTuple):
    """A member has learned that it has a shard under a generation, and where it begins."""

    member: str
    shard: int
    since: int
    offset: int


class Handed(NamedTuple):
    """The application of a member got a record."""

    member: str
    shard: int
    since: int
    offset: int


class CommitSent(NamedTuple):
    """A member is about to commit a position; `number` is the commit's."""

    number: int
    member: str
    shard: int
    since: int
    offset: int


class CommitTaken(NamedTuple):
    """A commit was acked."""

    number: int


class CommitRefused(NamedTuple):
    """A commit was refused. A commit with neither event may have been taken."""

    number: int


class Looking(NamedTuple):
    """A linearizable read of all positions begins."""

    number: int


class Seen(NamedTuple):
    """The committed position of a shard, as that read showed it."""

    number: int
    shard: int
    offset: int


Event = Given | Handed | CommitSent | CommitTaken | CommitRefused | Looking | Seen


class TopicShard(NamedTuple):
    """A shard in the end: what preceded it, and the keys of its records, each with the number of the record in its key."""

    predecessors: Sequence[int]
    records: Sequence[tuple[str, int]]


def check_group(history: Sequence[Event], topic: Mapping[int, TopicShard], *, is_finished: bool = True) -> list[str]:
    """Return what is wrong with a history. `is_finished`: everything was to be read and committed in the end."""
    return _Check(topic).run(history, is_finished=is_finished)


class _Check:
    def __init__(self, topic: Mapping[int, TopicShard]) -> None:
        self.topic = topic
        self.wrong: list[str] = []
        self.given: dict[int, Given] = {}  # the newest of each shard
        self.holdings: dict[tuple[int, int], Given] = {}
        self.next: dict[tuple[str, int, int], int] = {}  # what each holding gets next
        self.sent: dict[int, CommitSent] = {}
        self.stale: dict[int, None] = {}  # commits that were sent when somebody else had the shard
        self.taken: dict[int, int] = defaultdict(int)
        self.maybe: dict[int, int] = defaultdict(int)  # the highest position that may have been committed
        self.seen: dict[int, int] = defaultdict(int)
        self.least: dict[int, dict[int, int]] = {}  # what was committed or seen when a read began
        self.processed: dict[int, dict[int, None]] = defaultdict(dict)
        self.committed: list[tuple[int, int]] = []  # records by their first commit, in order
        self.is_committed: dict[int, int] = defaultdict(int)

    def run(self, history: Sequence[Event], *, is_finished: bool) -> list[str]:
        for event in history:
            match event:
                case Given():
                    self._given(event)
                case Handed():
                    self._handed(event)
                case CommitSent():
                    self._sent(event)
                case CommitTaken():
                    self._taken(event)
                case Looking():
                    shards = self.taken.keys() | self.seen.keys()
                    self.least[event.number] = {each: max(self.taken[each], self.seen[each]) for each in shards}
                case CommitRefused():
                    pass
                case Seen():
                    self._seen(event)
        if is_finished:
            self._finish()
        self._check_keys()
        return self.wrong

    def _given(self, event: Given) -> None:
        holding = self.holdings.setdefault((event.shard, event.since), event)
        if holding.member != event.member:
            self.wrong.append(f"{holding.member} and {event.member} have shard {event.shard} in one generation")
            return
        if holding is not event:
            return
        newest = self.given.get(event.shard)
        is_newest = newest is None or newest.since < event.since
        if is_newest:
            self.given[event.shard] = event
        least = (
            self.taken[event.shard] if is_newest else 0
        )  # who learns late that it had a shard may begin behind others
        if not least <= event.offset <= max(self.maybe[event.shard], self.taken[event.shard]):
            self.wrong.append(f"{event} does not begin where the group is: {self.taken[event.shard]}")
        for before in sorted(self._ancestors(event.shard)):
            end = len(self.topic[before].records)
            if self.maybe[before] < end:
                self.wrong.append(f"shard {event.shard} was handed out before {before} was finished")
            else:
                self._note_committed(before, end)  # the answer to that commit may come later
        self._note_committed(event.shard, min(event.offset, len(self.topic[event.shard].records)))
        self.next[event.member, event.shard, event.since] = event.offset

    def _ancestors(self, shard: int) -> list[int]:
        found = list(self.topic[shard].predecessors)
        for each in found:
            found += [before for before in self.topic[each].predecessors if before not in found]
        return found

    def _handed(self, event: Handed) -> None:
        key = event.member, event.shard, event.since
        if key not in self.next:
            self.wrong.append(f"{event} was not given to it")
        elif self.next[key] != event.offset:
            self.wrong.append(f"{event} is not the next one, which is {self.next[key]}")
        self.next[key] = event.offset + 1
        self.processed[event.shard][event.offset] = None

    def _sent(self, event: CommitSent) -> None:
        self.sent[event.number] = event
        got = self.next.get((event.member, event.shard, event.since), 0)
        if event.offset > got:
            self.wrong.append(f"{event} is beyond what it got, which is up to {got}")
        newest = self.given.get(event.shard)
        if newest is not None and newest.since > event.since:
            self.stale[event.number] = None
        else:
            self.maybe[event.shard] = max(self.maybe[event.shard], event.offset)

    def _taken(self, event: CommitTaken) -> None:
        commit = self.sent[event.number]
        if event.number in self.stale:
            self.wrong.append(f"{commit} was taken from a stale member")
        missing = [each for each in range(commit.offset) if each not in self.processed[commit.shard]]
        if missing:
            self.wrong.append(f"{commit} was taken, and nobody processed {missing[:5]}")
        self.taken[commit.shard] = max(self.taken[commit.shard], commit.offset)
        self._note_committed(commit.shard, commit.offset)

    def _note_committed(self, shard: int, end: int) -> None:
        self.committed += [(shard, offset) for offset in range(self.is_committed[shard], end)]
        self.is_committed[shard] = max(self.is_committed[shard], end)

    def _seen(self, event: Seen) -> None:
        if event.offset < self.least[event.number].get(event.shard, 0):
            self.wrong.append(f"the position of shard {event.shard} went back to {event.offset}")
        if event.offset > max(self.maybe[event.shard], self.taken[event.shard]):
            self.wrong.append(f"shard {event.shard} is at {event.offset}, which nobody has committed")
        self.seen[event.shard] = max(self.seen[event.shard], event.offset)

    def _finish(self) -> None:
        for shard, one in self.topic.items():
            missing = [each for each in range(len(one.records)) if each not in self.processed[shard]]
            if missing:
                self.wrong.append(f"records {missing[:5]} of shard {shard} were never handed out")
            if self.seen[shard] != len(one.records):
                self.wrong.append(f"shard {shard} is committed up to {self.seen[shard]} of {len(one.records)}")

    def _check_keys(self) -> None:
        """Commits move over the records of each key in order, over all shards."""
        last: dict[str, int] = {}
        for shard, offset in self.committed:
            key, number = self.topic[shard].records[offset]
            if number <= last.get(key, -1):
                self.wrong.append(f"record {number} of key {key} was committed after {last[key]}")
            last[key] = number
