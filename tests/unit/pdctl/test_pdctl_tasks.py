"""`pdctl task show | cancel | wait`: what is asked, and when a wait is over."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed, Unavailable
from rangelog_proto.v1 import inspection_pb2, pd_pb2


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.tasks.POLL_S", 0.001)


def _task(**fields: Any) -> pd_pb2.Task:
    usual = {"task_id": "upload-1/0-0@rs1", "kind": "upload-range", "stream_name": "s", "server": "rs1"}
    return pd_pb2.Task(**(usual | fields))


def _answers(*told: Any) -> Any:
    """Each answer once, then the last one for ever."""
    left = list(told)

    def answer(request: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


def _found(*tasks: pd_pb2.Task, settled: bool = True) -> inspection_pb2.FindTasksResponse:
    return inspection_pb2.FindTasksResponse(tasks=tasks, settled=settled)


def test_a_task_is_shown_with_its_result(pd: Any, pdctl: Any) -> None:
    """One that has ended as well; an unknown one is exit code 3."""
    pd.answers["find_tasks"] = _found(_task(done=True, result="done", done_ms=1_000))
    assert pdctl.json("task", "show", "upload-1/0-0@rs1")["result"] == "done"
    pd.answers["find_tasks"] = _found()
    assert "no task 'x'" in pdctl.fails(3, "task", "show", "x")


def test_a_cancel_says_what_follows(pd: Any, pdctl: Any) -> None:
    """The effect is printed; a refusal is exit code 5."""
    ended = _task(done=True, result="cancelled")
    pd.answers["cancel_task"] = inspection_pb2.CancelTaskResponse(task=ended, effect="put off for an hour")
    assert "put off for an hour" in pdctl("task", "cancel", "upload-1/0-0@rs1").stdout
    pd.answers["cancel_task"] = PreconditionFailed("task 'x' cannot be cancelled: it is decided")
    assert "it is decided" in pdctl.fails(5, "task", "cancel", "x")


def test_a_wait_ends_with_the_task(pd: Any, pdctl: Any) -> None:
    """Through an election in between; a cancelled task is exit code 1."""
    pd.answers["find_tasks"] = _answers(
        _found(_task()), Unavailable("an election"), _found(settled=False), _found(_task(done=True, result="done"))
    )
    assert pdctl("task", "wait", "upload-1/0-0@rs1").stdout == "upload-1/0-0@rs1: done\n"
    pd.answers["find_tasks"] = _found(_task(done=True, result="cancelled"))
    assert pdctl("task", "wait", "upload-1/0-0@rs1").exit_code == 1


def test_an_empty_list_counts_only_once_the_leader_knows_all(pd: Any, pdctl: Any) -> None:
    """A new leader has an empty list at first: the wait goes on until it has settled."""
    pd.answers["find_tasks"] = _answers(_found(settled=False), _found(_task()), _found(settled=False), _found())
    assert pdctl("task", "wait", "--all").exit_code == 0
    assert len(pd.requests) == 4


def test_a_wait_that_is_too_short_says_what_is_left(pd: Any, pdctl: Any) -> None:
    """Exit code 4, with the error that one fails with."""
    pd.answers["find_tasks"] = _found(_task(last_error="no room"))
    said = pdctl.fails(4, "task", "wait", "--kind", "upload-range", "--for", "5ms")
    assert "1 task left, one fails: no room" in said and pd.requests[0][1].kind == "upload-range"


def test_a_cluster_that_was_never_reached_is_not_waited_for(pd: Any, pdctl: Any) -> None:
    """The first error is told at once, as by every other verb."""
    pd.was_reached = False
    pd.answers["find_tasks"] = Unavailable("no placement driver at 127.0.0.1:1: connection refused")
    assert "connection refused" in pdctl.fails(4, "task", "wait", "--all")
    assert len(pd.requests) == 1


def test_an_outage_during_a_wait_is_one_line(pd: Any, pdctl: Any) -> None:
    """On stderr, however often it is asked again; a later outage is told again."""
    down = Unavailable("nobody leads")
    pd.answers["find_tasks"] = _answers(_found(_task()), down, down, down, _found(_task()), down, _found())
    done = pdctl("task", "wait", "--all")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "pdctl: nobody leads; the wait goes on\n" * 2 + "no task is left\n"


def test_a_wait_needs_one_thing_to_wait_for(pd: Any, pdctl: Any) -> None:
    """Neither nothing nor two things."""
    for arguments in ((), ("x", "--all"), ("--all", "--kind", "x")):
        assert "what to wait for?" in pdctl.fails(2, "task", "wait", *arguments)
