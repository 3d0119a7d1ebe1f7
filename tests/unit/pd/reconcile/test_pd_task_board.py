"""The board of tasks: what is current, and how what is not any more has ended."""

from __future__ import annotations

from rangelog_pd.reconcile.task_board import ENDED_KEPT_MS, ENDED_MAX, TaskBoard
from rangelog_proto.v1 import pd_pb2


def _upload(task_id: str = "upload-1/0-0@rs1") -> pd_pb2.Directive:
    return pd_pb2.Directive(task_id=task_id, stream_id=1, upload_range=pd_pb2.UploadRange(end_offset=5))


def test_a_done_task_stays_visible_for_a_while() -> None:
    """It leaves the current ones at once, and is found with its result until ten minutes later."""
    board = TaskBoard()
    board.want("rs1", _upload(), "s", 1_000)
    current = board.find("upload-1/0-0@rs1", 1_500)
    assert current is not None and not current.done and current.can_be_cancelled
    board.report([pd_pb2.TaskReport(task_id="upload-1/0-0@rs1", done=True)], 2_000)
    assert board.listing(2_000, failing_only=False) == []
    ended = board.find("upload-1/0-0@rs1", 2_000)
    assert ended is not None and (ended.done, ended.result, ended.done_ms) == (True, "done", 2_000)
    assert board.find("upload-1/0-0@rs1", 2_001 + ENDED_KEPT_MS) is None


def test_a_task_that_is_no_longer_wanted_is_withdrawn() -> None:
    """What is not requested any more has ended without a report: that is said, not "done"."""
    board = TaskBoard()
    board.want("rs1", _upload(), "s", 1_000)
    ended = board.find("upload-1/0-0@rs1", 20_000)
    assert ended is not None and ended.result == "withdrawn"


def test_a_cancelled_task_is_gone() -> None:
    """Cancelled once; what has ended cannot be cancelled."""
    board = TaskBoard()
    board.want("rs1", _upload(), "s", 1_000)
    ended = board.cancel("upload-1/0-0@rs1", 1_100)
    assert ended is not None and ended.result == "cancelled" and board.listing(1_100, failing_only=False) == []
    assert board.cancel("upload-1/0-0@rs1", 1_200) is None


def test_ends_are_bounded() -> None:
    """The oldest end is forgotten first."""
    board = TaskBoard()
    for number in range(ENDED_MAX + 2):
        board.want("rs1", _upload(f"t{number}"), "s", 1_000)
        board.report([pd_pb2.TaskReport(task_id=f"t{number}", done=True)], 1_000)
    assert len(board.ended(1_000)) == ENDED_MAX and board.find("t1", 1_000) is None
