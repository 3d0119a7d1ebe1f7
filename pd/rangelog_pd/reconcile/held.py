"""The ranges that retention keeps beyond their stream's age or size, with the reason; for people, and for the next look.

In the leader's memory only: the next leader finds the same as soon as it looks at what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rangelog_pd.reconcile.due_queue import DueQueue
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import discard
from rangelog_proto.v1 import pd_pb2

AGE, SIZE = "age", "size"
HELD_LISTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class HeldRanges:
    """Ranges of a stream that are due to be trimmed and are kept. Times in cluster time, ms."""

    since_ms: int
    offset: int
    """Where the first of them starts."""
    cursor: str = ""
    """The live cursor that has not passed them; empty: they are not in the tier."""
    cursor_offset: int = 0
    late_ms: int = 0
    """When they are trimmed although they are not in the tier; 0: that does not depend on time."""


class HeldStreams:
    """The streams with such ranges."""

    def __init__(self) -> None:
        self._held: dict[int, dict[str, HeldRanges]] = {}
        self._late_times: dict[int, int] = {}
        self._late: DueQueue[int] = DueQueue({})

    def put(self, stream_id: int, limit: str, held: HeldRanges | None) -> None:
        """Note what is kept beyond one limit of a stream, AGE or SIZE; None: nothing."""
        if held is None:
            discard(self._held, stream_id, limit)
        else:
            self._held.setdefault(stream_id, {})[limit] = held
        if limit == AGE:
            late_ms = held.late_ms if held is not None else 0
            if not late_ms:
                self._late_times.pop(stream_id, None)
            elif self._late_times.get(stream_id) != late_ms:
                self._late_times[stream_id] = late_ms
                self._late.put(stream_id, self._late_times)

    def late(self, time_ms: int) -> Iterator[int]:
        """Yield the streams of which a bound is reached."""
        yield from self._late.take(time_ms, self._late_times)

    def forget(self, stream_id: int) -> None:
        """Forget a stream that was deleted."""
        self._held.pop(stream_id, None)
        self._late_times.pop(stream_id, None)

    def untiered_count(self) -> int:
        """Return how many streams have such ranges because they are not in the tier."""
        return sum(any(not each.cursor for each in held.values()) for held in self._held.values())

    def tasks(self, state: State, time_ms: int, *, failing_only: bool) -> list[pd_pb2.Task]:
        """Return them as tasks, oldest first. A range that waits for its upload is failing; one that a cursor keeps is not."""
        found: list[pd_pb2.Task] = []
        for stream_id, by_limit in self._held.items():
            stream = state.streams.find(stream_id)
            for limit, held in by_limit.items():
                if stream is None or len(found) >= HELD_LISTED_MAX or (failing_only and held.cursor):
                    continue
                task = pd_pb2.Task(
                    task_id=f"retain-stream/{stream_id}/{limit}",
                    kind="retain-stream",
                    stream_id=stream_id,
                    stream_name=stream.name,
                    since_ms=held.since_ms,
                    age_ms=max(0, time_ms - held.since_ms),
                )
                if held.cursor:
                    task.detail = (
                        f"beyond its {limit} from offset {held.offset}, and kept for cursor {held.cursor!r} at "
                        f"{held.cursor_offset}"
                    )
                else:
                    task.last_error = (
                        f"beyond its {limit} from offset {held.offset}, and kept because it is not in the tier: look at "
                        f"the uploads; at twice the {limit} it is trimmed nevertheless"
                    )
                found.append(task)
        return sorted(found, key=lambda task: (task.since_ms, task.task_id))
