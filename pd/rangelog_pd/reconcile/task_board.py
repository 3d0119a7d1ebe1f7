"""The current tasks of the range servers, by name, for people: their start, the number of requests, and the last error.

What holds: a task exists as long as its directive; its last error stays until it is done or withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from rangelog_proto.v1 import common_pb2, pd_pb2

_ERROR_LENGTH_MAX = 300
_FORGET_MS = 10_000
_TASKS_MAX = 100_000


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

    def want(self, server: str, directive: pd_pb2.Directive, stream_name: str, now_ms: int) -> None:
        """Note that a directive is sent, or repeated."""
        entry = self._entries.pop(directive.task_id, None)
        if entry is None:
            if len(self._entries) >= _TASKS_MAX:
                return
            task = pd_pb2.Task(
                task_id=directive.task_id,
                kind=(directive.WhichOneof("action") or "").replace("_", "-"),
                stream_id=directive.stream_id,
                stream_name=stream_name,
                range_index=directive.range_index,
                server=server,
                since_ms=now_ms,
            )
            object_ids = tuple(directive.delete_objects.object_ids)
            entry = _Entry(task, now_ms, object_ids)
        self._entries[directive.task_id] = entry  # at the end: tasks are ordered by their last request
        entry.wanted_ms = now_ms
        entry.done = False
        entry.task.attempts += 1

    def report(self, reports: Iterable[pd_pb2.TaskReport]) -> list[int]:
        """Apply a server's results; return the ids of the objects that it deleted by this leader's directives."""
        deleted: list[int] = []
        for report in reports:
            entry = self._entries.get(report.task_id)
            if entry is not None:
                if report.done and not entry.done:
                    deleted += entry.object_ids
                entry.done = report.done
                if report.error:
                    entry.task.last_error = report.error[:_ERROR_LENGTH_MAX]
        return deleted

    def last_error(self, task_id: str) -> str:
        """Return the last error of a task that is not done; empty where there is none."""
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

    def expire(self, now_ms: int) -> None:
        """Remove tasks that were not requested for a while."""
        old = takewhile(lambda item: now_ms - item[1].wanted_ms > _FORGET_MS, self._entries.items())
        for task_id, _ in list(old):
            del self._entries[task_id]

    def clear(self) -> None:
        """Remove all tasks, since another member leads."""
        self._entries.clear()
