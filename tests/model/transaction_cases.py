"""The cases of transactions: the design in small instances, and each wrong choice with what it breaks."""

from __future__ import annotations

from tests.model.case import Case
from tests.model.search import Result, explore
from tests.model.transaction_model import TransactionModel
from tests.model.transaction_state import FIRST, NEXT_INSTANCE, OTHER_ID, SECOND, A, B, Staging

PAIR = ((0, A, (0,)), (0, A, (0,)))
"""Two batches of the first transaction at one shard."""
THREE = (*PAIR, (0, B, (0,)))
DIVIDED = ((0, A, (0, 1)), (0, A, (0,)))
"""The first batch has both keys."""
BOTH = (*PAIR, (1, A, (0,)))
ONE_EACH = ((0, A, (0,)), (1, A, (0,)))
LATER, RESTART, OTHER = (FIRST, SECOND), (FIRST, NEXT_INSTANCE), (FIRST, OTHER_ID)


def _case(name: str, why: str, instance: Staging, expect: str = "", *, large: bool = False) -> Case:
    def search() -> Result:
        model = TransactionModel(instance)
        live = model.promises.goal if not expect else None
        return explore(instance.initial(), model.successors, model.promises.invariant, live, name=name)

    return Case("transaction", name, why, instance, search, expect, large)


def _group(wrong: str) -> Staging:
    return Staging(ONE_EACH, OTHER, group=True, wrong=wrong)


TRANSACTION_RIGHT = [
    _case("takeover", "two batches, a takeover, an ordinary batch", Staging(PAIR, takeovers=(1,), ordinary=(1,))),
    _case("two-shards", "two shards, two takeovers of one", Staging(THREE, takeovers=(2,), ordinary=(1,))),
    _case("two-owners", "two shards, a takeover and an ordinary batch of each",
          Staging(THREE, takeovers=(1, 1), ordinary=(1, 1)), large=True),
    _case("second", "the next transaction of the same producer", Staging(BOTH, LATER, takeovers=(1,))),
    _case("second-two-shards", "the same, two shards and an ordinary batch",
          Staging((*THREE, (1, A, (0,))), LATER, takeovers=(1,), ordinary=(1,)), large=True),
    _case("next-instance", "a later instance of the producer, the earlier one goes on", Staging(BOTH, RESTART, takeovers=(1,))),
    _case("next-instance-two-shards", "the same, two shards and an ordinary batch",
          Staging((*THREE, (1, A, (0,))), RESTART, takeovers=(1,), ordinary=(1,)), large=True),
    _case("split", "a split at any moment, a takeover before or after it",
          Staging(DIVIDED, takeovers=(1,), ordinary=(0, 0, 1), scale="split")),
    _case("split-three", "three batches, a takeover of a successor",
          Staging((*DIVIDED, (0, A, (0,))), takeovers=(0, 0, 1), ordinary=(0, 0, 1), scale="split"), large=True),
    _case("split-second", "the next transaction is staged at the successor, or not",
          Staging((*DIVIDED, (1, A, (0,))), LATER, takeovers=(1,), scale="split"), large=True),
    _case("split-next-instance", "a later instance, takeovers of parent and successor",
          Staging(((0, A, (0, 1)), (1, A, (0,))), RESTART, takeovers=(1, 0, 1), scale="split"), large=True),
    _case("split-and-merge", "a split and a merge at any moment", Staging(DIVIDED, scale="split and merge")),
    _case("split-and-merge-takeovers", "the same, takeovers of the first and of the last shard",
          Staging(DIVIDED, takeovers=(1, 0, 0, 0, 1), ordinary=(0, 0, 0, 0, 1), scale="split and merge"), large=True),
    _case("split-and-merge-second", "the same, and the next transaction", Staging(BOTH, LATER, scale="split and merge"),
          large=True),
    _case("join", "two shards become one", Staging(THREE, ordinary=(0, 0, 1), scale="join")),
    _case("join-takeovers", "the same, takeovers of a parent and of the successor",
          Staging(THREE, takeovers=(1, 0, 1), ordinary=(0, 0, 1), scale="join"), large=True),
    _case("group", "the next member has another transactional id", Staging(ONE_EACH, OTHER, takeovers=(1,), group=True)),
    _case("group-restart", "the next member has the same transactional id",
          Staging(ONE_EACH, RESTART, takeovers=(1,), group=True)),
    _case("group-split", "a group's position, and a split", Staging(ONE_EACH, OTHER, scale="split", group=True), large=True),
    _case("no-floor", "owners do not know what is finished: what is held in the log is enough",
          Staging(BOTH, LATER, wrong="no-floor")),
    _case("reported-when-merged", "a merge is reported before it is noted as finished: enough",
          Staging(BOTH, LATER, takeovers=(1,), wrong="reported-when-merged")),
    _case("reported-when-merged-split", "the same with a split",
          Staging(BOTH, LATER, takeovers=(1, 0, 1), scale="split", wrong="reported-when-merged"), large=True),
]  # fmt: skip

TRANSACTION_WRONG = [
    _case("abort-wins", "a commit that is decided expires", Staging(PAIR, wrong="abort-wins"), "GHOST"),
    _case("commit-after-abort", "what expired is committed by a later request", Staging(PAIR, wrong="commit-after-abort"),
          "LOST"),
    _case("order-before-ack", "an order is sent before its entry is acked", Staging(PAIR, wrong="order-before-ack"), "GHOST"),
    _case("begin-after-stage", "a batch is staged before the begin is acked", Staging(PAIR, wrong="begin-after-stage"), "LOST"),
    _case("unknown-by-deposed", "'unknown' is believed without a proof", Staging(PAIR, wrong="unknown-by-deposed"), "LOST"),
    _case("participants-left-out", "the coordinator does not know all participants",
          Staging(((0, A, (0,)), (0, B, (0,)), (1, A, (0,))), LATER, wrong="participants-left-out"), "TORN"),
    _case("forgotten-unmerged", "a commit is forgotten before it is merged",
          Staging(BOTH, LATER, wrong="forgotten-unmerged"), "LOST"),
    _case("no-order", "the next one is committed before the earlier one is merged",
          Staging(ONE_EACH, LATER, wrong="no-order"), "LOST"),
    _case("no-number", "orders lack the number", Staging(BOTH, LATER, wrong="no-number"), "GHOST"),
    _case("drop-older", "an owner drops what is staged under a lower number", Staging(BOTH, LATER, wrong="drop-older"), "LOST"),
    _case("dropped-for-age", "an owner drops what is staged for long", Staging(PAIR, wrong="dropped-for-age"), "LOST"),
    _case("merged-in-memory", "the next owner does not look up what is merged",
          Staging(PAIR, takeovers=(1,), wrong="merged-in-memory"), "TWICE"),
    _case("held-until-reported", "what is merged is forgotten once the merge is reported",
          Staging(PAIR, wrong="held-until-reported"), "TWICE"),
    _case("finished-in-flight", "a transaction is finished while its merge is in flight",
          Staging(PAIR, takeovers=(1,), wrong="finished-in-flight"), "LOST"),
    _case("finished-when-ordered", "a transaction is finished once the order is there",
          Staging(PAIR, takeovers=(1,), wrong="finished-when-ordered"), "LOST"),
    _case("floor-over-older", "what is dropped raises the floor over an earlier one that is not merged",
          Staging(BOTH, LATER, wrong="floor-over-older"), "LOST"),
    _case("no-runs", "ordinary batches are appended in the midst of a merge", Staging(PAIR, ordinary=(1,), wrong="no-runs"),
          "SCATTERED"),
    _case("run-in-memory", "the next owner does not know that it is in the midst of a merge",
          Staging(PAIR, takeovers=(1,), ordinary=(1,), wrong="run-in-memory"), "SCATTERED"),
    _case("parts-in-any-order", "a part is appended without those before it", Staging(PAIR, wrong="parts-in-any-order"),
          "MISORDERED"),
    _case("staged-ack-in-flight", "a staged batch is acked before it is durable",
          Staging(PAIR, takeovers=(1,), wrong="staged-ack-in-flight"), "LOST"),
    _case("fence-log-only", "a takeover does not fence the side log",
          Staging(PAIR, takeovers=(1,), wrong="fence-log-only"), "TORN"),
    _case("side-read-first", "a takeover reads the side log before its fence",
          Staging(PAIR, takeovers=(1,), wrong="side-read-first"), "TORN"),
    _case("staged-at-the-successor", "after a split an open transaction goes on at the successor",
          Staging(PAIR, scale="split", wrong="staged-at-the-successor"), "MISORDERED"),
    _case("not-here-in-flight", "'not here' while a batch of the transaction is in flight",
          Staging(PAIR, scale="split", wrong="not-here-in-flight"), "TWICE"),
    _case("not-here-by-deposed", "'not here' is answered without a proof",
          Staging(PAIR, takeovers=(1,), scale="split", wrong="not-here-by-deposed"), "TWICE"),
    _case("ended-shard-not-asked", "a merge goes to the successors at once",
          Staging(PAIR, scale="split", wrong="ended-shard-not-asked"), "TWICE"),
    _case("side-log-ends", "the side log ends with its shard", Staging(PAIR, scale="split", wrong="side-log-ends"), "LOST"),
    _case("offsets-at-stage", "a group's position moves when it is staged", _group("offsets-at-stage"), "POSITION-AHEAD"),
    _case("offsets-at-commit", "a group hears of the position at the commit", _group("offsets-at-commit"), "INPUT-TWICE"),
    _case("no-hold", "a position that is about to move is handed out", _group("no-hold"), "INPUT-TWICE"),
    _case("generation-at-apply", "a stale member is refused when its commit is applied", _group("generation-at-apply"),
          "POSITION-LOST"),
    _case("generation-unchecked", "a stale member's position is staged", _group("generation-unchecked"), "INPUT-TWICE"),
]  # fmt: skip

TRANSACTION = TRANSACTION_WRONG + TRANSACTION_RIGHT
