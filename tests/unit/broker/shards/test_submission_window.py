"""Windows of submissions that live on: names that are given again, windows that meet in a merge, what a full one costs."""

from __future__ import annotations

import pytest

from rangelog.errors import PreconditionFailed
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.submission_window import PlacedRun, SubmissionWindow
from rangelog_core.batch_extension import Submission

NAME = b"n" * 16


def _window(*noted: tuple[Submission, int, int]) -> SubmissionWindow:
    window = SubmissionWindow()
    for submission, shard_id, offset in noted:
        window.note(submission, shard_id, offset)
    return window


def _restored(window: SubmissionWindow) -> SubmissionWindow:
    return SubmissionWindow.restore(window.snapshot())


def test_a_name_that_is_given_again_after_its_time_stands_for_the_later_records() -> None:
    """The owner had forgotten the first ones; who replays its log has not, and the log shows that they were forgotten."""
    window = _window((Submission(NAME, 1, ((0, 3),)), 0, 0), (Submission(NAME, 2, ((0, 1), (2, 1))), 0, 500))
    for each in (window, _restored(window)):
        assert each.find(Submission(NAME, 2, ((0, 3),))) == [PlacedRun(0, 1, 0, 500), PlacedRun(2, 1, 0, 501)]
        with pytest.raises(PreconditionFailed):
            each.find(Submission(NAME, 1, ((0, 3),)))
        assert len(each) == 2


def test_the_same_records_again_after_their_time_have_their_later_places() -> None:
    """Each has one place, the one that its latest request was answered with."""
    window = _window((Submission(NAME, 1, ((0, 10),)), 0, 0), (Submission(NAME, 1, ((0, 5),)), 0, 500))
    assert window.find(Submission(NAME, 1, ((0, 10),))) == [PlacedRun(0, 5, 0, 500)]
    window.note(Submission(NAME, 1, ((5, 5),)), 0, 505)
    assert window.find(Submission(NAME, 1, ((0, 10),))) == [PlacedRun(0, 5, 0, 500), PlacedRun(5, 5, 0, 505)]
    assert len(window) == 2


def test_contents_that_meet_in_a_merge_keep_their_places() -> None:
    """Two shards took different records under one name; neither is answered with the place of the other's."""
    parents = [ShardState.first(), ShardState.first()]
    for shard_id, parent in enumerate(parents, start=1):
        parent.submissions.note(Submission(NAME, shard_id, ((0, 1),)), shard_id, 10 * shard_id)
    merged = ShardState.first(parents).submissions
    for window in (merged, _restored(merged), ShardState.first([ShardState.restore(ShardState(
        parents[0].table, submissions=merged).snapshot())]).submissions):  # fmt: skip
        for shard_id in (1, 2):
            assert window.find(Submission(NAME, shard_id, ((0, 2),))) == [PlacedRun(0, 1, shard_id, 10 * shard_id)]
        with pytest.raises(PreconditionFailed):
            window.find(Submission(NAME, 3, ((0, 1),)))
        assert len(window) == 2
        window.note(Submission(NAME, 2, ((1, 1),)), 3, 0)
        assert window.find(Submission(NAME, 2, ((0, 2),))) == [PlacedRun(0, 1, 2, 20), PlacedRun(1, 1, 3, 0)]
        window.forget(0, 1)
        window.forget(600_000, 1)
        assert len(window) == 0 and window.find(Submission(NAME, 3, ((0, 1),))) == []
