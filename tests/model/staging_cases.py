"""The cases of the product's staging: the design in small instances, and each wrong choice with what it breaks."""

from __future__ import annotations

from tests.model.case import Case
from tests.model.search import Result, explore
from tests.model.staging_model import StagingModel
from tests.model.staging_state import FIRST, NEXT_INSTANCE, OTHER_ID, SECOND, THIRD, Program

ONE = ((0, (0,)),)
PAIR = ((0, (0,)), (0, (0,)))
"""Two batches of the first transaction."""
DIVIDED = ((0, (0, 1)), (0, (0,)))
"""The first batch has both keys."""
BOTH = ((0, (0,)), (1, (0,)))
DIVIDED_THEN = ((0, (0, 1)), (1, (0,)))
LATER, RESTART, OTHER = (FIRST, SECOND), (FIRST, NEXT_INSTANCE), (FIRST, OTHER_ID)


def _case(name: str, why: str, program: Program, expect: str = "", *, large: bool = False) -> Case:
    def search() -> Result:
        model = StagingModel(program)
        live = model.promises.goal if expect in ("", "dead-end") else None
        return explore(program.initial(), model.successors, model.promises.invariant, live, name=name)

    return Case("staging", name, why, program, search, expect, large)


STAGING_RIGHT = [
    _case("staged-takeovers", "two batches, two takeovers, an ordinary batch", Program(PAIR, takeovers=(2,), ordinary=(1,))),
    _case("staged-second", "the next transaction of the same program, a takeover", Program(BOTH, LATER, takeovers=(1,))),
    _case("staged-next-instance", "a later instance, the earlier one goes on", Program(BOTH, RESTART, takeovers=(1,))),
    _case("staged-split", "a split at any moment, a takeover before it", Program(DIVIDED, takeovers=(1,), scale="split")),
    _case("staged-split-successor", "the same, a takeover of a successor and an ordinary batch",
          Program(DIVIDED, takeovers=(0, 1), ordinary=(0, 1), scale="split")),
    _case("staged-split-second", "a split and two transactions of one program", Program(BOTH, LATER, scale="split")),
    _case("staged-merge", "a split and a merge", Program(DIVIDED, scale="split and merge")),
    _case("staged-merge-takeovers", "the same, takeovers of the first and the last shard",
          Program(DIVIDED, takeovers=(1, 0, 0, 1), scale="split and merge")),
    _case("staged-merge-successor", "the same, a takeover and an ordinary batch of a successor and of the last shard",
          Program(DIVIDED, takeovers=(0, 1, 0, 1), ordinary=(0, 1, 0, 1), scale="split and merge"), large=True),
    _case("staged-merge-second", "a split and a merge, two transactions",
          Program(DIVIDED_THEN, LATER, scale="split and merge")),
    _case("staged-merge-second-takeovers", "the same, takeovers",
          Program(DIVIDED_THEN, LATER, takeovers=(1, 1, 0, 1), scale="split and merge"), large=True),
    _case("staged-split-next-instance", "a split, a later instance, a takeover",
          Program(DIVIDED_THEN, RESTART, takeovers=(1, 1), scale="split"), large=True),
    _case("staged-merge-next-instance", "a split and a merge, a later instance, takeovers",
          Program(DIVIDED_THEN, RESTART, takeovers=(1, 0, 0, 1), scale="split and merge"), large=True),
    _case("staged-third", "three transactions of one program, a takeover",
          Program(((0, (0,)), (1, (0,)), (2, (0,))), (FIRST, SECOND, THIRD), takeovers=(1,))),
    _case("staged-third-split", "the same, a split and a merge",
          Program(((0, (0,)), (1, (0,)), (2, (0,))), (FIRST, SECOND, THIRD), scale="split and merge")),
    _case("staged-two-programs", "two programs, a split", Program(DIVIDED_THEN, OTHER, scale="split"), large=True),
    _case("staged-two-programs-takeovers", "the same, takeovers",
          Program(DIVIDED_THEN, OTHER, takeovers=(1, 1), scale="split"), large=True),
]  # fmt: skip

STAGING_WRONG = [
    # ---- the program and the coordinator
    _case("begin-after-stage", "a batch is staged before the begin is acked", Program(ONE, wrong="begin-after-stage"), "LOST"),
    _case("commit-unflushed", "a commit is asked for before all is staged", Program(PAIR, wrong="commit-unflushed"), "LOST"),
    _case("participants-current", "the participants are the shards that are current",
          Program(PAIR, scale="split", wrong="participants-current"), "LOST"),
    _case("abort-wins", "a commit that is decided expires", Program(ONE, wrong="abort-wins"), "GHOST"),
    _case("commit-after-abort", "what expired is committed by a later request", Program(ONE, wrong="commit-after-abort"),
          "LOST"),
    _case("forgotten-unmerged", "a commit is forgotten as the next transaction begins",
          Program(BOTH, LATER, wrong="forgotten-unmerged"), "LOST"),
    _case("no-order", "a commit is decided before the one before it is merged", Program(BOTH, LATER, wrong="no-order"), "LOST"),
    _case("numbers-per-transaction", "batches are numbered anew in each transaction",
          Program(BOTH, LATER, wrong="numbers-per-transaction"), "LOST"),
    _case("no-question", "after a split what is in doubt is staged at the successors",
          Program(PAIR, scale="split", wrong="no-question"), "TWICE"),
    # ---- what is staged
    _case("staged-ack-in-flight", "a staged batch is acked before it is durable",
          Program(ONE, takeovers=(1,), wrong="staged-ack-in-flight"), "LOST"),
    _case("dropped-for-age", "an owner drops what is staged for long", Program(ONE, wrong="dropped-for-age"), "LOST"),
    _case("unknown-unproved", "'unknown' is believed of a coordinator that was deposed",
          Program(ONE, wrong="unknown-unproved"), "LOST"),
    _case("trimmed-unmerged", "the side log is trimmed before the merge is acked",
          Program(ONE, takeovers=(1,), wrong="trimmed-unmerged"), "LOST"),
    _case("numbers-trimmed", "a producer's number is lost with the entries that are trimmed",
          Program(BOTH, LATER, takeovers=(1,), expires=False, wrong="numbers-trimmed"), "dead-end"),
    _case("side-log-ends", "what is staged ends with its shard", Program(ONE, scale="split", wrong="side-log-ends"), "LOST"),
    _case("side-log-first", "a takeover reads the side log before the fence of the log, and the former owner opens it again",
          Program(ONE, takeovers=(1,), wrong="side-log-first"), "LOST"),
    _case("side-read-first", "a takeover reads the side log before its fence",
          Program(ONE, takeovers=(1,), wrong="side-read-first"), "LOST"),
    # ---- merges
    _case("merged-by-deposed", "a deposed owner, which holds nothing of it, answers that it is merged",
          Program(ONE, takeovers=(1,), wrong="merged-by-deposed"), "LOST"),
    _case("noted-in-flight", "a merge is noted before it is acked", Program(ONE, takeovers=(1,), wrong="noted-in-flight"),
          "LOST"),
    _case("appended-again", "an order that is repeated appends a run that is in flight", Program(ONE, wrong="appended-again"),
          "TWICE"),
    _case("merged-in-memory", "the next owner does not look up what is merged",
          Program(ONE, takeovers=(1,), wrong="merged-in-memory"), "TWICE"),
    _case("run-unfinished", "the next owner goes on inside a run",
          Program(PAIR, takeovers=(1,), ordinary=(1,), wrong="run-unfinished"), "SCATTERED"),
    _case("ended-is-merged", "a shard that has ended is taken for one that has merged",
          Program(ONE, scale="split", wrong="ended-is-merged"), "LOST"),
    _case("one-successor", "one of the successors is asked to merge",
          Program(((0, (0, 1)),), scale="split", wrong="one-successor"), "TORN"),
    _case("dedup-lost", "a successor does not ask what was merged before it",
          Program(ONE, scale="split", wrong="dedup-lost"), "TWICE"),
    _case("ways-of-the-staging-shard", "of the shards before it a successor asks only the one that staged",
          Program(ONE, scale="split and merge", wrong="ways-of-the-staging-shard"), "TWICE"),
    _case("any-order", "a shard merges before those that it follows", Program(PAIR, scale="split", wrong="any-order"),
          "MISORDERED"),
]  # fmt: skip

STAGING = STAGING_WRONG + STAGING_RIGHT
