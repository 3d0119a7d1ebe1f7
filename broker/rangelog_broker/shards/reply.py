"""Who waits for the outcome of a batch, and how a batch of a submission is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rangelog.errors import RangelogError
from rangelog_broker.shards.submission_window import PlacedRun, SubmissionWindow
from rangelog_core.batch_extension import Submission


class Reply(Protocol):
    """Who waits for the outcome of a batch."""

    def acked(self, request_id: int, offset: int) -> None:
        """The batch is acked at this offset."""

    def placed(self, request_id: int, runs: Sequence[PlacedRun]) -> None:
        """Records of a submission are acked: those of the batch, or those of them that were in a log before, and only they."""

    def refused(self, request_id: int, error: RangelogError) -> None:
        """The batch has no outcome, or was refused."""


class SubmissionReply(NamedTuple):
    """Answers a batch of a submission once the window has its records."""

    reply: Reply
    window: SubmissionWindow
    submission: Submission

    def acked(self, request_id: int, offset: int) -> None:
        """See Reply."""
        self.placed(request_id, self.window.find(self.submission))

    def placed(self, request_id: int, runs: Sequence[PlacedRun]) -> None:
        """See Reply."""
        self.reply.placed(request_id, runs)

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See Reply."""
        self.reply.refused(request_id, error)
