"""The current tasks of the range servers, by name, for people: their start, the number of requests, and the last error.

What holds: a task exists as long as its directive; its last error stays until it is done or withdrawn. How it ended stays for a
while longer: done, withdrawn (no longer wanted: usually a report shows that nothing is left to do), or cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, pd_pb2

_ERROR_LENGTH_MAX = 300
_FORGET_MS = 10_000
_TASKS_MAX = 100_000
ENDED_KEPT_MS = 600_000
ENDED_MAX = 2_000
DONE, WITHDRAWN, CANCELLED = "done", "withdrawn", "cancelled"
CANCELLABLE = ("upload-range", "copy-replica", "repack-objects")
"""Kinds that are put off when they are cancelled; the others are what the state already says, and cost little."""


def task_id_of(kind: str, found: common_pb2.Range, server: str) -> str:
    """Return the name of the task of a server on a range."""
    return f"{kind}-{found.stream_id}/{found.index}-{found.tiered_end_offset}@{server}"


@dataclass(slots=True)
class _Entry:
    task: pd_pb2.Task
    wanted_ms: int
    object_ids: tuple[int, ...] = ()
    done: bool = False


@dataclass(slots=True)
class TaskBoard:
    """All tasks of this leader."""

    _entries: dict[str, _Entry] = field(default_factory=dict)
    _ended: dict[str, pd_pb2.Task] = field(default_factory=dict)  # in order of their ends
    current_counts: dict[str, int] = field(default_factory=dict)
    """Current tasks by kind."""
    failing_count: int = 0
    """Current tasks whose last attempt failed."""
    ended_counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Tasks by kind and by how they ended, since this process started."""

    def want(self, server: str, directive: pd_pb2.Directive, stream_name: str, now_ms: int) -> None:
        """Note that a directive is sent, or repeated."""
        entry = self._entries.pop(directive.task_id, None)
        if entry is None:
            if len(self._entries) >= _TASKS_MAX:
                return
            kind = (directive.WhichOneof("action") or "").replace("_", "-")
            task = pd_pb2.Task(
                task_id=directive.task_id,
                kind=kind,
                stream_id=directive.stream_id,
                stream_name=stream_name,
                range_index=directive.range_index,
                server=server,
                since_ms=now_ms,
                can_be_cancelled=kind in CANCELLABLE,
            )
            object_ids = tuple(directive.delete_objects.object_ids)
            entry = _Entry(task, now_ms, object_ids)
            self._count(entry, 1)
        elif entry.done:
            self._count(entry, 1)
        self._entries[directive.task_id] = entry  # at the end: tasks are ordered by their last request
        entry.wanted_ms = now_ms
        entry.done = False
        entry.task.attempts += 1

    def report(self, reports: Iterable[pd_pb2.TaskReport], now_ms: int) -> list[int]:
        """Apply a server's results; return the ids of the objects that it deleted by this leader's directives."""
        deleted: list[int] = []
        for report in reports:
            entry = self._entries.get(report.task_id)
            if entry is not None:
                if not entry.done:
                    self._count(entry, -1)
                if report.done and not entry.done:
                    deleted += entry.object_ids
                    self._end(entry, DONE, now_ms)
                entry.done = report.done
                if report.error:
                    entry.task.last_error = report.error[:_ERROR_LENGTH_MAX]
                if not entry.done:
                    self._count(entry, 1)
        return deleted

    def last_error(self, task_id: str) -> str:
        """Return the last error of a task that is not done; empty without an error."""
        entry = self._entries.get(task_id)
        return entry.task.last_error if entry is not None and not entry.done else ""

    def listing(self, now_ms: int, *, failing_only: bool) -> list[pd_pb2.Task]:
        """Return the current tasks, oldest first."""
        self.expire(now_ms)
        found = sorted(
            (entry.task for entry in self._entries.values() if not entry.done), key=lambda task: task.since_ms
        )
        for task in found:
            task.age_ms = max(0, now_ms - task.since_ms)
        return [task for task in found if task.last_error] if failing_only else found

    def find(self, task_id: str, now_ms: int) -> pd_pb2.Task | None:
        """Return one task, current or ended a while ago."""
        self.expire(now_ms)
        entry = self._entries.get(task_id)
        if entry is not None and not entry.done:
            entry.task.age_ms = max(0, now_ms - entry.task.since_ms)
            return entry.task
        return self._ended.get(task_id)

    def ended(self, now_ms: int) -> list[pd_pb2.Task]:
        """Return the tasks that ended in the last minutes, in order of their ends."""
        self.expire(now_ms)
        return list(self._ended.values())

    def cancel(self, task_id: str, now_ms: int) -> pd_pb2.Task | None:
        """Remove a current task; return how it ended, or None for an unknown task."""
        entry = self._entries.get(task_id)
        if entry is None or entry.done:
            return None
        del self._entries[task_id]
        self._count(entry, -1)
        return self._end(entry, CANCELLED, now_ms)

    def _count(self, entry: _Entry, change: int) -> None:
        """Count a current task that comes (1) or goes (-1); one whose error changes goes and comes."""
        kind = entry.task.kind
        self.current_counts[kind] = self.current_counts.get(kind, 0) + change
        self.failing_count += change if entry.task.last_error else 0

    def _end(self, entry: _Entry, result: str, now_ms: int) -> pd_pb2.Task:
        kind = entry.task.kind
        self.ended_counts[kind, result] = self.ended_counts.get((kind, result), 0) + 1
        ended = copy_of(entry.task)
        ended.done, ended.done_ms, ended.result, ended.can_be_cancelled = True, now_ms, result, False
        ended.age_ms = max(0, now_ms - ended.since_ms)
        self._ended.pop(ended.task_id, None)
        self._ended[ended.task_id] = ended
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return ended

    def expire(self, now_ms: int) -> None:
        """Remove tasks that were not requested for a while, and ends of long ago."""
        old = takewhile(lambda item: now_ms - item[1].wanted_ms > _FORGET_MS, self._entries.items())
        for task_id, entry in list(old):
            del self._entries[task_id]
            if not entry.done:
                self._count(entry, -1)
                self._end(entry, WITHDRAWN, now_ms)
        old_ends = takewhile(lambda task: now_ms - task.done_ms > ENDED_KEPT_MS, self._ended.values())
        for ended in list(old_ends):
            del self._ended[ended.task_id]

    def clear(self) -> None:
        """Remove all tasks, since another member leads."""
        self._entries.clear()
        self._ended.clear()
        self.current_counts.clear()
        self.failing_count = 0
