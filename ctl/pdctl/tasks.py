"""`pdctl task show | cancel | wait`. cluster.py has the group and the list."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field, printable
from pdctl.session import EXIT_FAILED, NothingFound, Session, output_option, session_of
from pdctl.units import Duration, show_age, show_count, show_ms, show_time
from rangelog_core.errors import RequestTimeout, Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient

POLL_S = 0.5
WAIT_DEFAULT = "10m"
_COLUMNS = [
    field("ID", "task_id"),
    field("KIND", "kind"),
    ("STREAM OR TOPIC", lambda row: row["topic"] or row["stream"] or "-"),
    ("RANGE", lambda row: "-" if row["topic"] else row["range_index"]),
    ("SERVER", lambda row: row["server"] or "-"),
    ("STATE", lambda row: row["result"] if row["done"] else row["state"] or "in progress"),
    field("SINCE", "since_ms", show_time),
    ("AGE", lambda row: show_age(row["age_ms"]) if row["since_ms"] else "-"),
    ("ENDED", lambda row: show_time(row["done_ms"])),
    field("ASKED", "attempts"),
    ("LAST ERROR", lambda row: row["last_error"] or "-"),
    ("DETAIL", lambda row: row["detail"] or "-"),
    ("CAN BE CANCELLED", lambda row: "yes" if row["can_be_cancelled"] else "no"),
]


@click.command()
@click.argument("task_id")
@output_option
@session_of
def show(session: Session, task_id: str, output: str) -> None:
    """Show one task. One that has ended stays visible for ten minutes, unless another placement driver leads meanwhile.

    \b
    Example:
      pdctl task show upload-7/3-1200@rs1
    """
    told = session.with_pd(lambda pd: _find(pd, session.timeout_s, task_id=task_id))
    if not told.tasks:
        raise NothingFound(f"no task {task_id!r}, nor one that ended in the last ten minutes: see `pdctl task list`")
    emit_one(_view(told.tasks[0]), output, _COLUMNS)


@click.command()
@click.argument("task_id")
@output_option
@session_of
def cancel(session: Session, task_id: str, output: str) -> None:
    """Cancel an upload, a copy or a repack.

    A cancelled upload or copy is put off for an hour. Other tasks carry out what was decided and are refused.

    \b
    Example:
      pdctl task cancel upload-7/3-1200@rs1
    """
    from rangelog_proto.v1 import inspection_pb2

    request = inspection_pb2.CancelTaskRequest(task_id=task_id)
    told = session.call(request, inspection_pb2.CancelTaskResponse)
    emit_done(printable(f"{task_id} is cancelled: {told.effect}"), _view(told.task) | {"effect": told.effect}, output)


@click.command()
@click.argument("task_id", required=False)
@click.option("--all", "all_tasks", is_flag=True, help="Wait until there is no task at all.")
@click.option("--kind", default="", help="Wait for all tasks of this kind, such as copy-replica.")
@click.option("--stream", default="", help="Wait for all tasks of this stream.")
@click.option("--server", default="", help="Wait for all tasks of this range server.")
@click.option("--for", "wait_ms", type=Duration(), default=WAIT_DEFAULT, show_default=True, help="How long at most.")
@output_option
@session_of
def wait(
    session: Session,
    task_id: str | None,
    all_tasks: bool,
    kind: str,
    stream: str,
    server: str,
    wait_ms: int,
    output: str,
) -> None:
    """Wait until a task has ended, or until none of a kind, stream or server is left.

    The exit code is 1 when the task was cancelled, 4 when it goes on after the given time. A new leader's list counts only once
    all living servers have reported to it.

    \b
    Examples:
      pdctl task wait upload-7/3-1200@rs1
      pdctl task wait --kind copy-replica --for 1h
      pdctl task wait --all
    """
    filtered = bool(kind or stream or server)
    if sum((task_id is not None, all_tasks, filtered)) != 1:
        raise click.UsageError("what to wait for? Give one of: a task's id, --all, or filters such as --kind")
    wanted = {"task_id": task_id or "", "kind": kind, "stream_name": stream, "server": server}
    ended = session.with_pd(lambda pd: _wait(pd, session.timeout_s, wanted, wait_ms))
    if task_id is None:
        emit_list([], output, [], empty="no task is left")
        return
    row = ended or {"task_id": task_id, "result": "gone"}
    emit_done(printable(f"{task_id}: {row['result']}"), row, output)
    if row["result"] == "cancelled":
        sys.exit(EXIT_FAILED)


async def _wait(pd: PdClient, timeout_s: float, wanted: dict[str, str], wait_ms: int) -> dict[str, Any] | None:
    """Return how the one task has ended; None: nothing that fits is left. Raises NothingFound, RequestTimeout,
    and Unavailable where the cluster was never reached."""
    end_s = time.monotonic() + wait_ms / 1000
    seen, is_away, left = False, False, "nothing was seen yet"
    while True:
        told = None
        try:
            told = await _find(pd, timeout_s, **wanted)
        except Unavailable as error:
            if not pd.was_reached:
                raise
            left = error.message  # a leader is being elected: its tasks go on
            if not is_away:
                click.echo(printable(f"pdctl: {left}; the wait goes on"), err=True)
        is_away = told is None
        if told is not None:
            current = [each for each in told.tasks if not each.done]
            if wanted["task_id"] and told.tasks and not current:
                return _view(told.tasks[0])
            if not current and told.settled:
                if wanted["task_id"] and not seen:
                    raise NothingFound(f"no task {wanted['task_id']!r}: see `pdctl task list`")
                return None
            seen = seen or bool(current)
            left = _left(current) if current else "not all range servers have reported to the leader"
        if time.monotonic() >= end_s:
            raise RequestTimeout(f"not over after {show_ms(wait_ms, '0s')}: {left}; it goes on: see `pdctl task list`")
        await asyncio.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))


def _left(current: list[Any]) -> str:
    failing = [each for each in current if each.last_error]
    text = f"{show_count(len(current), 'task')} left"
    return f"{text}, one fails: {failing[0].last_error}" if failing else text


async def _find(pd: PdClient, timeout_s: float, **wanted: str) -> Any:
    from rangelog_proto.v1 import inspection_pb2

    request = inspection_pb2.FindTasksRequest(**wanted)  # type: ignore[arg-type]
    return await pd.call(request, inspection_pb2.FindTasksResponse, timeout_s=timeout_s)


def _view(task: Any) -> dict[str, Any]:
    from pdctl.views import task_view

    return task_view(task)
