"""The repacks that the leader orders by itself: found where something changed, given to range servers, repeated until done.

What holds:

* A look reads the neighbourhood of one range. It follows a change there (a commit, a trim, a repack), or the moment from which
  a few neighbours are old enough. A new leader looks through all streams once, a bounded number of ranges a round.
* No object is in two repacks of this queue. A repack that has begun goes on under the next leader, by the prepared object.
* A repack is over when its objects do not all count any more: then it was carried out, or something of it was trimmed, deleted
  or repacked by others. Its commit is a compare-and-set (state/repacks.py), so nothing here has to be right for safety.
* One that fails for long gives its place to others and is tried again later, by any server; meanwhile it is a failing task.
* What waits is bounded: while the queue is full, nothing is looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from rangelog_core.repack_choice import RepackRules, RepackUnit, choose
from rangelog_pd.reconcile.repack_units import unit_of, units_around
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2

OFF = RepackRules(target_bytes=0)
CONCURRENCY_DEFAULT = 4
KIND = "repack-objects"
LOOKS_PER_ROUND = 500
QUEUED_MAX = 1_000
"""Repacks that wait, are under way, or are put off."""
CHANGED_MAX = 10_000
"""Ranges to look at; of more, their whole streams are looked through."""
FAILS_MAX_MS = 30_000.0
"""A repack that fails for so long is put off."""
PUT_OFF_MS, PUT_OFF_MS_MAX = 60_000.0, 3_600_000.0
LOOK_AGAIN_MS = 60_000
"""Beside an object that others are repacking."""

Hosting = tuple[str, int]


@dataclass(slots=True, eq=False)
class OrderedRepack:
    """Objects that are to become one, and who is at it. Times on the leader's monotonic clock, in ms."""

    stream_id: int
    range_index: int
    object_ids: tuple[int, ...]
    server: str = ""
    incarnation: int = 0
    since_ms: int = 0
    """In cluster time."""
    fails_since_ms: float | None = None
    put_off_count: int = 0
    last_error: str = ""

    @property
    def task_id(self) -> str:
        """The name of the task."""
        ids = self.object_ids
        return f"{KIND}-{self.stream_id}/{self.range_index}-{ids[0]}-{ids[-1]}-{len(ids)}@{self.server}"


class RepackQueue:
    """See the module."""

    def __init__(self, rules: RepackRules = OFF, concurrency: int = CONCURRENCY_DEFAULT) -> None:
        """`concurrency`: repacks at a time, of all servers together; each has one."""
        self._rules = rules
        self._concurrency = concurrency
        self._changed: dict[RangeKey, None] = {}
        self._passing: dict[int, int] = {}  # stream to look through → from which offset on
        self._dues: dict[tuple[int, int], int] = {}  # (stream, offset) → when to look there, in cluster time
        self._due_heap: list[tuple[int, tuple[int, int]]] = []
        self._busy: dict[int, OrderedRepack] = {}  # by the ids of their objects
        self._waiting: dict[OrderedRepack, None] = {}
        self._under_way: dict[str, OrderedRepack] = {}
        self._put_off: list[tuple[float, int, OrderedRepack]] = []
        self._number = 0

    def begin(self, state: State) -> None:
        """Start over, as a leader: servers go on with what they have begun, and all streams are looked through once."""
        for each in (
            self._changed,
            self._dues,
            self._due_heap,
            self._busy,
            self._waiting,
            self._under_way,
            self._put_off,
        ):
            each.clear()
        self._passing = dict.fromkeys(state.streams, 0) if self._rules.target_bytes else {}
        for object_id in state.range_objects.prepared if self._rules.target_bytes else ():
            found = state.objects[object_id]
            if found.replaces and found.incarnation:
                self._put(
                    OrderedRepack(
                        found.stream_id, found.range_index, tuple(found.replaces), found.server, found.incarnation
                    )
                )

    # ---- what changes

    def note(self, key: RangeKey) -> None:
        """Look at a range soon: more of it is in the tier, or its object is another one."""
        if not self._rules.target_bytes:
            return
        if len(self._changed) < CHANGED_MAX:
            self._changed[key] = None
        else:
            self._passing[key[0]] = 0

    def note_start(self, state: State, stream_id: int) -> None:
        """Look at the first records of a stream soon: it was trimmed."""
        stream = state.streams.find(stream_id)
        if stream is not None:
            self.note((stream_id, state.ranges.of(stream_id).index_beyond(stream.trim_offset)))

    def reported(self, task_id: str, *, error: str, now_ms: float) -> None:
        """Note what a server says of a repack."""
        found = self._under_way.get(task_id)
        if found is None:
            return
        if not error:
            found.fails_since_ms = None
            return
        found.last_error = error
        if found.fails_since_ms is None:
            found.fails_since_ms = now_ms
        elif now_ms - found.fails_since_ms >= FAILS_MAX_MS:
            self.put_off(task_id, now_ms + min(PUT_OFF_MS * 2**found.put_off_count, PUT_OFF_MS_MAX))

    def put_off(self, task_id: str, until_ms: float) -> None:
        """Do not go on with a repack until then."""
        found = self._under_way.pop(task_id, None)
        if found is not None:
            found.server, found.incarnation, found.fails_since_ms = "", 0, None
            found.put_off_count += 1
            self._number += 1
            heapq.heappush(self._put_off, (until_ms, self._number, found))

    # ---- what is to be done

    def work(
        self,
        state: State,
        is_there: Callable[[str, int], bool],
        able: Callable[[], Iterable[Hosting]],
        now_ms: float,
        time_ms: int,
    ) -> None:
        """One round: drop what is over, look at what changed, give repacks to servers.

        Args:
            state: The state.
            is_there: Whether a server in one incarnation may still be at its repack.
            able: Returns the servers that may begin one, in order of preference.
            now_ms: The leader's monotonic clock.
            time_ms: Cluster time.
        """
        if not self._rules.target_bytes:
            return
        for repack in list(self._under_way.values()):
            if not self._counts(state, repack):
                self._drop(repack)
            elif not is_there(repack.server, repack.incarnation):
                del self._under_way[repack.task_id]
                repack.server, repack.incarnation, repack.fails_since_ms = "", 0, None
                self._waiting = {repack: None} | self._waiting
        while self._put_off and self._put_off[0][0] <= now_ms:
            self._waiting[heapq.heappop(self._put_off)[2]] = None
        self._look_around(state, time_ms)
        self._assign(state, able)

    def wanted(self, server: str, incarnation: int) -> list[OrderedRepack]:
        """Return the repacks of one server."""
        return [each for each in self._under_way.values() if (each.server, each.incarnation) == (server, incarnation)]

    def tasks(self, state: State, time_ms: int) -> list[pd_pb2.Task]:
        """Return those that failed and are put off; those under way are the tasks of their servers."""
        found = []
        for _, _, each in sorted(self._put_off)[:QUEUED_MAX]:
            stream = state.streams.find(each.stream_id)
            if stream is not None and each.last_error:
                found.append(
                    pd_pb2.Task(
                        task_id=each.task_id,
                        kind=KIND,
                        stream_id=each.stream_id,
                        stream_name=stream.name,
                        range_index=each.range_index,
                        since_ms=each.since_ms,
                        age_ms=max(0, time_ms - each.since_ms),
                        last_error=each.last_error,
                        detail="it is tried again later; the objects stay as they are",
                    )
                )
        return found

    # ---- inside

    def _counts(self, state: State, repack: OrderedRepack) -> bool:
        """Whether all objects of a repack still count."""
        rows = (state.objects.find(object_id) for object_id in repack.object_ids)
        return all(row is not None and row.state == common_pb2.OBJECT_STATE_COMMITTED for row in rows)

    def _put(self, repack: OrderedRepack) -> None:
        for object_id in repack.object_ids:
            self._busy[object_id] = repack
        if repack.server:
            self._under_way[repack.task_id] = repack
        else:
            self._waiting[repack] = None

    def _drop(self, repack: OrderedRepack) -> None:
        """Forget a repack, and look at its place again."""
        for object_id in repack.object_ids:
            if self._busy.get(object_id) is repack:
                del self._busy[object_id]
        self._waiting.pop(repack, None)
        self._under_way.pop(repack.task_id, None)
        self.note((repack.stream_id, repack.range_index))

    def _assign(self, state: State, able: Callable[[], Iterable[Hosting]]) -> None:
        """Give waiting repacks to servers that have none."""
        if not self._waiting or len(self._under_way) >= self._concurrency:
            return
        at_work = {each.server for each in self._under_way.values()}
        free = iter([each for each in able() if each[0] not in at_work])
        for repack in list(self._waiting):
            if not self._counts(state, repack):
                self._drop(repack)
                continue
            server = next(free, None) if len(self._under_way) < self._concurrency else None
            if server is None:
                return
            del self._waiting[repack]
            repack.server, repack.incarnation = server
            self._under_way[repack.task_id] = repack

    def _look_around(self, state: State, time_ms: int) -> None:
        others = _Others(state, self._busy)
        left = LOOKS_PER_ROUND
        for key in self._to_look_at(state, time_ms):
            if not left or self._count() >= QUEUED_MAX:
                self.note(key)
                return
            left -= 1
            self._look(state, key, others, time_ms)

    def _count(self) -> int:
        return len(self._waiting) + len(self._under_way) + len(self._put_off)

    def _to_look_at(self, state: State, time_ms: int) -> Iterator[RangeKey]:
        """Yield the ranges to look at now, each taken from where it was noted."""
        for key in list(islice(self._changed, LOOKS_PER_ROUND)):
            del self._changed[key]
            yield key
        while self._due_heap and self._due_heap[0][0] <= time_ms:
            due_ms, place = heapq.heappop(self._due_heap)
            if self._dues.get(place) == due_ms:
                del self._dues[place]
                yield place[0], state.ranges.of(place[0]).index_beyond(place[1])
        for _ in range(LOOKS_PER_ROUND if self._passing else 0):
            if not self._passing:
                return
            stream_id, offset = next(iter(self._passing.items()))
            ranges = state.ranges.of(stream_id)
            found = ranges.first_from(ranges.index_beyond(offset))
            if found is None or found.state != common_pb2.RANGE_STATE_SEALED:
                del self._passing[stream_id]
                continue
            unit = unit_of(state, stream_id, found.index)
            self._passing[stream_id] = unit.end_offset if unit is not None else found.end_offset
            yield stream_id, found.index

    def _look(self, state: State, key: RangeKey, others: _Others, time_ms: int) -> None:
        stream_id, index = key
        units, met_others = units_around(state, stream_id, index, self._rules.target_bytes, others)
        chosen = choose(units, self._rules, time_ms)
        for some in chosen.repacks:
            self._put(_repack(stream_id, some, time_ms))
        due_ms = chosen.due_ms
        if met_others:
            due_ms = min(due_ms or time_ms + LOOK_AGAIN_MS, time_ms + LOOK_AGAIN_MS)
        if due_ms is not None:
            place = (stream_id, units[0].start_offset if units else _start_of(state, key))
            self._dues[place] = due_ms
            heapq.heappush(self._due_heap, (due_ms, place))


class _Others:
    """The objects that are being repacked: those of the queue, and those of packers that somebody started by hand."""

    def __init__(self, state: State, busy: dict[int, OrderedRepack]) -> None:
        self._busy = busy
        prepared = (state.objects[object_id] for object_id in state.range_objects.prepared)
        self._claimed = {object_id for each in prepared for object_id in each.replaces}

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._busy or object_id in self._claimed


def _repack(stream_id: int, units: list[RepackUnit], time_ms: int) -> OrderedRepack:
    objects = [each for unit in units for each in unit.objects]
    ids = tuple(each.object_id for each in objects)
    return OrderedRepack(stream_id, objects[-1].range_index, ids, since_ms=time_ms)


def _start_of(state: State, key: RangeKey) -> int:
    found = state.ranges.find(key)
    return found.start_offset if found is not None else 0
