"""The directives in progress: each is one background task that is repeated with backoff until it is done or withdrawn.

The placement driver repeats a directive until its report shows it done, so nothing here is persisted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from rangelog_core.errors import InternalError, RangelogError
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives.copy import SourcesFailed
from rangelog_server.agent.directives.recover import WriterAnswers
from rangelog_server_common.metrics.tally import count_by

TASKS_MAX = 1_000
BACKOFF_S = 0.2
BACKOFF_S_MAX = 10.0
WITHDRAWN_AFTER_HEARTBEATS = 4
DONE_AGAIN_AFTER_S = 5.0
"""A directive that is repeated so long after it was reported as done is carried out again."""
CONCURRENT_MAX = {
    "upload_range": 1,
    "copy_replica": 2,
    "delete_objects": 1,
    "write_manifests": 1,
    "repack_objects": 1,
    "recover_range": 2,
    "leave_range": 16,
    "seal_replica": 16,
    "drop_replica": 16,
}

_log = structlog.get_logger("agent")

Executor = Callable[[pb.Directive], Awaitable[None]]


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    directive: pb.Directive  # the latest form of the directive
    done: bool = False
    writer_answers: bool = False
    done_at: float = 0.0
    error: str = ""
    failed_servers: tuple[str, ...] = ()  # peers that the last attempt could not copy from
    absent: int = 0


class DirectiveRunner:
    """The directives in progress on this server."""

    def __init__(
        self,
        executors: dict[str, Executor],
        finished: Callable[[], None],
        counts: dict[str, dict[str, int]] | None = None,
    ) -> None:
        """`counts`: attempts by action and result, which this runner counts."""
        self._executors = executors
        self._counts = counts if counts is not None else {}
        self._finished = finished
        self._running: dict[str, _Running] = {}
        self._slots = {action: asyncio.Semaphore(count) for action, count in CONCURRENT_MAX.items()}

    def wanted(self, directives: list[pb.Directive]) -> None:
        """Replace the set of directives by those of the latest heartbeat reply."""
        now = asyncio.get_running_loop().time()
        seen: dict[str, None] = {}
        for directive in directives:
            seen[directive.task_id] = None
            running = self._running.get(directive.task_id)
            if running is not None:
                running.absent = 0
                running.directive = directive  # its content may have changed: the next attempt uses it
                if not running.done or now < running.done_at + DONE_AGAIN_AFTER_S:
                    continue
            if len(self._running) < TASKS_MAX:
                self._start(directive)
        for task_id in list(self._running):
            if task_id not in seen:
                self._absent(task_id)

    def reports(self) -> list[pb.TaskReport]:
        """Return the status of each directive."""
        return [
            pb.TaskReport(
                task_id=task_id,
                done=running.done,
                error=running.error,
                failed_servers=running.failed_servers,
                writer_answers=running.writer_answers,
            )
            for task_id, running in self._running.items()
        ]

    async def close(self) -> None:
        """Cancel all directives."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, directive: pb.Directive) -> None:
        task_id = directive.task_id
        self._running[task_id] = _Running(asyncio.create_task(self._run(directive)), directive)

    def _absent(self, task_id: str) -> None:
        running = self._running[task_id]
        running.absent += 1
        if running.done or running.absent >= WITHDRAWN_AFTER_HEARTBEATS:
            running.task.cancel()
            del self._running[task_id]

    async def _run(self, directive: pb.Directive) -> None:
        action = directive.WhichOneof("action") or ""
        executor = self._executors.get(action)
        where = {"task": directive.task_id, "action": action, "range": f"{directive.stream_id}/{directive.range_index}"}
        backoff_s = BACKOFF_S
        while True:
            await asyncio.sleep(0)  # give the caller time to store the task
            running = self._running[directive.task_id]
            failed_servers: tuple[str, ...] = ()
            problem = ""
            try:
                if executor is None:
                    raise InternalError("this server does not know the directive: upgrade it")
                async with self._slots[action]:
                    await executor(running.directive)
            except WriterAnswers:
                running.writer_answers = True
            except RangelogError as error:
                problem = f"{error.code}: {error.message}"
                failed_servers = error.servers if isinstance(error, SourcesFailed) else ()
            except Exception as error:
                _log.exception("a directive failed", **where)
                problem = f"INTERNAL: {type(error).__name__}"
            count_by(self._counts.setdefault(action, {}), problem.partition(":")[0] or "OK")
            if not problem:
                running.done, running.error, running.failed_servers = True, "", ()
                running.done_at = asyncio.get_running_loop().time()
                self._finished()
                return
            if problem != running.error:
                _log.warning("a directive failed; it will be retried", problem=problem, **where)
            running.error, running.failed_servers = problem, failed_servers
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
