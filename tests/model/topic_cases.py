"""The cases of topics: the design in small instances, and each wrong choice with what it breaks."""

from __future__ import annotations

from tests.model.case import Case
from tests.model.search import Result, explore
from tests.model.topic_model import TopicModel
from tests.model.topic_state import Promises, Topic

ONE = ((0, 1, (0, 1, 0)),)
"""One instance of one producer: the keys of its records."""
NEXT_INSTANCE = ((0, 1, (0, 0)), (0, 2, (0,)))
TWO = ((0, 1, (0, 1)), (1, 1, (0, 1)))


def _topic(name: str, why: str, instance: Topic, expect: str = "", *, large: bool = False) -> Case:
    def search() -> Result:
        model, promises = TopicModel(instance), Promises(instance)
        live = promises.goal if not expect and not instance.expiries else None
        return explore(instance.initial(), model.successors, promises.invariant, live, name=name)

    return Case("topic", name, why, instance, search, expect, large)


TOPIC_RIGHT = [
    _topic("failover", "five records, three takeovers", Topic(((0, 1, (0, 0, 0, 0, 0)),), takeovers=3)),
    _topic("failover-snapshots", "two takeovers, snapshots of any age", Topic(ONE, takeovers=2, snapshots=True)),
    _topic("expiry", "and the producer expires in a table", Topic(ONE, takeovers=2, snapshots=True, expiries=1)),
    _topic("expiry-wide", "the same, a window of three and three takeovers",
           Topic(((0, 1, (0, 0, 0, 0)),), takeovers=3, window=3, snapshots=True, expiries=1), large=True),
    _topic("expiry-split", "the same with a split", Topic(ONE, scales=1, takeovers=1, snapshots=True, expiries=1), large=True),
    _topic("split", "three records, a split, two takeovers", Topic(ONE, scales=1, takeovers=2)),
    _topic("split-four", "four records, two of each key", Topic(((0, 1, (0, 1, 0, 1)),), scales=1, takeovers=1)),
    _topic("merge", "three records, a split and a merge, a takeover", Topic(ONE, scales=2, takeovers=1)),
    _topic("merge-two-takeovers", "the same, two takeovers", Topic(ONE, scales=2, takeovers=2), large=True),
    _topic("merge-four", "the same, four records", Topic(((0, 1, (0, 1, 0, 1)),), scales=2, takeovers=1), large=True),
    _topic("merge-four-takeovers", "the same, four records and two takeovers",
           Topic(((0, 1, (0, 1, 0, 1)),), scales=2, takeovers=2), large=True),
    _topic("merge-wide", "batches of one record, a window of three",
           Topic(((0, 1, (0, 1, 0, 0)),), scales=2, takeovers=1, window=3, batch_records=1), large=True),
    _topic("merge-snapshots", "the same with snapshots", Topic(ONE, scales=2, takeovers=2, snapshots=True), large=True),
    _topic("next-instance", "a producer and its next instance, a split", Topic(NEXT_INSTANCE, scales=1)),
    _topic("next-instance-split", "two records each, a split, a takeover",
           Topic(((0, 1, (0, 1)), (0, 2, (1, 0))), scales=1, takeovers=1), large=True),
    _topic("next-instance-merge", "a split and a merge, a takeover",
           Topic(((0, 1, (0, 1)), (0, 2, (0,))), scales=2, takeovers=1), large=True),
    _topic("three-instances", "three instances of one producer, a split and a merge",
           Topic(((0, 1, (0,)), (0, 2, (0,)), (0, 3, (0,))), scales=2), large=True),
    _topic("two-producers", "two producers, a split", Topic(((0, 1, (0, 1)), (1, 1, (0,))), scales=1, takeovers=1)),
    _topic("two-producers-wide", "two producers, two records each", Topic(TWO, scales=1, takeovers=1), large=True),
    _topic("two-producers-merge", "two producers, a split and a merge",
           Topic(((0, 1, (0, 1)), (1, 1, (1,))), scales=2, takeovers=1), large=True),
]  # fmt: skip

TOPIC_WRONG = [
    _topic("no-fence", "the assignment is trusted: a new owner does not fence",
           Topic(ONE, takeovers=1, wrong="no-fence"), "DUPLICATED"),
    _topic("table-before-fence", "a warm table is not read on to the end that the fence settled",
           Topic(ONE, takeovers=1, wrong="table-before-fence"), "DUPLICATED"),
    _topic("no-table", "a new owner begins with an empty table", Topic(ONE, takeovers=1, wrong="no-table"), "DUPLICATED"),
    _topic("ack-in-flight", "a retry of a batch in flight is acked at once",
           Topic(ONE, takeovers=1, wrong="ack-in-flight"), "ACKED-LOST"),
    _topic("duplicate-is-error", "a retry of an acked batch is refused, and the caller takes it for a failure",
           Topic(ONE, wrong="duplicate-is-error"), "FALSE-FAILURE"),
    _topic("gap-accepted", "a batch is taken without the one before it", Topic(ONE, wrong="gap-accepted"), "ACKED-LOST"),
    _topic("starts-anywhere", "an unknown producer may begin above 0", Topic(ONE, wrong="starts-anywhere"), "ACKED-LOST"),
    _topic("gap-is-failure", "'out of order' is taken for an outcome", Topic(ONE, wrong="gap-is-failure"), "FALSE-FAILURE"),
    _topic("closed-is-failure", "'closed' is taken for an outcome",
           Topic(ONE, scales=1, wrong="closed-is-failure"), "FALSE-FAILURE"),
    _topic("fenced-is-failure", "'fenced' is taken for an outcome",
           Topic(NEXT_INSTANCE, wrong="fenced-is-failure"), "FALSE-FAILURE"),
    _topic("short-table", "fewer batches are remembered than may be without an outcome",
           Topic(ONE, wrong="short-table"), "WRONG-ACK"),
    _topic("unresolved-counted", "batches without an outcome are counted, not how far they reach",
           Topic(ONE, batch_records=1, wrong="unresolved-counted"), "WRONG-ACK"),
    _topic("sequence-reused", "the number of a batch that is given up goes to the next",
           Topic(ONE, wrong="sequence-reused"), "ACKED-LOST"),
    _topic("no-epoch-check", "owners do not compare epochs of producers",
           Topic(NEXT_INSTANCE, wrong="no-epoch-check"), "MISORDERED"),
    _topic("epochs-not-inherited", "children begin without the epochs that their parents saw",
           Topic(NEXT_INSTANCE, scales=1, wrong="epochs-not-inherited"), "MISORDERED"),
    _topic("epochs-of-one-parent", "a merged shard takes the epochs of one parent",
           Topic(((0, 1, (1,)), (0, 2, (1,))), scales=2, wrong="epochs-of-one-parent"), "MISORDERED"),
    _topic("epochs-not-passed-on", "inherited epochs are not passed on",
           Topic(((0, 1, (0,)), (0, 2, (0,))), scales=2, wrong="epochs-not-passed-on"), "MISORDERED"),
    _topic("sequences-inherited", "children take their parents' sequences for their own",
           Topic(ONE, scales=1, wrong="sequences-inherited"), "ACKED-LOST"),
    _topic("snapshot-ahead", "a snapshot holds batches that are not acked",
           Topic(ONE, takeovers=1, snapshots=True, wrong="snapshot-ahead"), "ACKED-LOST"),
    _topic("snapshot-behind", "a snapshot lacks batches below its offset",
           Topic(ONE, takeovers=1, snapshots=True, wrong="snapshot-behind"), "DUPLICATED"),
    _topic("trim-past-snapshot", "the log is trimmed beyond the snapshot",
           Topic(ONE, takeovers=1, snapshots=True, wrong="trim-past-snapshot"), "DUPLICATED"),
    _topic("expired-without-floor", "a producer that expires is as if it had never been",
           Topic(ONE, expiries=1, wrong="expired-without-floor"), "DUPLICATED"),
    _topic("expiry-breaks-the-fold", "a log with batches of a producer that a snapshot let expire is taken for damaged",
           Topic(ONE, takeovers=2, snapshots=True, expiries=1, wrong="expiry-breaks-the-fold"), "CANNOT-OPEN"),
    _topic("stale-end", "a parent's end is taken from an owner that was replaced",
           Topic(ONE, scales=1, takeovers=1, wrong="stale-end"), "ACKED-LOST"),
    _topic("end-unchecked", "a parent's end is not that of its last range",
           Topic(ONE, scales=1, wrong="end-unchecked"), "ACKED-LOST"),
    _topic("goes-on", "an owner that closed its shard goes on under the same epoch",
           Topic(ONE, scales=1, wrong="goes-on"), "ACKED-LOST"),
    _topic("parent-reopened", "the stream of an ended shard is opened again",
           Topic(ONE, scales=1, takeovers=1, wrong="parent-reopened"), "ACKED-LOST"),
    _topic("child-early", "children take batches before their parents' ends are committed",
           Topic(NEXT_INSTANCE, scales=1, wrong="child-early"), "MISORDERED"),
    _topic("no-question", "what is in doubt is numbered anew without asking",
           Topic(ONE, scales=1, wrong="no-question"), "DUPLICATED"),
    _topic("asked-too-early", "'it is not there' before the end is committed",
           Topic(ONE, scales=1, wrong="asked-too-early"), "DUPLICATED"),
    _topic("asked-former-owner", "'it is not there' from a former owner's table",
           Topic(ONE, scales=1, takeovers=1, wrong="asked-former-owner"), "DUPLICATED"),
    _topic("asked-of-the-child", "a child is asked for what its parent holds",
           Topic(ONE, scales=1, wrong="asked-of-the-child"), "DUPLICATED"),
    _topic("parent-table-lost", "the parent's table is in the memory of the child's first owner",
           Topic(ONE, scales=1, takeovers=1, wrong="parent-table-lost"), "DUPLICATED"),
    _topic("grandparent-table-lost", "only parents can be asked", Topic(ONE, scales=2, wrong="grandparent-table-lost"),
           "DUPLICATED"),
    _topic("asked-without-epoch", "the question lacks the producer's epoch",
           Topic(NEXT_INSTANCE, scales=1, wrong="asked-without-epoch"), "ACKED-LOST"),
    _topic("any-order", "answers are asked for in any order, and records wait in the order of the answers",
           Topic(ONE, scales=1, wrong="any-order"), "MISORDERED"),
    _topic("requeued-last", "what was not there goes to the end of the queue",
           Topic(ONE, scales=1, wrong="requeued-last"), "MISORDERED"),
    _topic("new-overtakes", "records are numbered while older ones are in doubt on an ancestor",
           Topic(ONE, scales=1, wrong="new-overtakes"), "MISORDERED"),
    _topic("doubt-on-parents-only", "doubt on a grandparent does not count",
           Topic(ONE, scales=2, wrong="doubt-on-parents-only"), "MISORDERED"),
    _topic("map-goes-back", "a producer takes over an earlier map",
           Topic(ONE, scales=1, wrong="map-goes-back"), "ACKED-LOST"),
]  # fmt: skip

TOPIC = TOPIC_WRONG + TOPIC_RIGHT
