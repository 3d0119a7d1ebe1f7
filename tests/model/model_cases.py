"""All cases of the models: the protocol as it should be, in small instances, and each wrong choice with what it breaks."""

from __future__ import annotations

from tests.model.case import Case
from tests.model.ending_model import Ending
from tests.model.repack_cases import REPACK
from tests.model.reports_model import Reports
from tests.model.seal_model import SealModel
from tests.model.seal_state import AT_ONCE, IN_TURN, Seal
from tests.model.search import Result, explore
from tests.model.staging_cases import STAGING
from tests.model.tier_state import Instance
from tests.model.tier_steps import TierModel
from tests.model.topic_cases import TOPIC
from tests.model.transaction_cases import TRANSACTION


def _tier(name: str, why: str, instance: Instance, expect: str = "", *, large: bool = False) -> Case:
    def search() -> Result:
        model = TierModel(instance)
        result = explore(instance.initial(), model.successors, instance.invariant, instance.goal, name=name)
        result.trace = model.told(result.path) if result.path else []
        return result

    return Case("tier", name, why, instance, search, expect, large)


def _seal(name: str, why: str, instance: Seal, expect: str = "", *, large: bool = False, bound: bool = False) -> Case:
    def search() -> Result:
        model = SealModel(instance)
        live = instance.goal if not expect or expect == "dead-end" else None
        result = explore(instance.initial(), model.successors, instance.invariant, live, name=name)
        result.trace = model.told(result.path) if result.path else []
        return result

    return Case("seal", name, why, instance, search, expect, large, bound)


def _reports(
    name: str, why: str, instance: Reports, expect: str = "", *, large: bool = False, bound: bool = False
) -> Case:
    def search() -> Result:
        return explore(instance.initial(), instance.successors, instance.invariant, name=name)

    return Case("reports", name, why, instance, search, expect, large, bound)


def _ending(name: str, why: str, expect: str = "") -> Case:
    instance = Ending(name if expect else "")

    def search() -> Result:
        return explore(instance.initial(), instance.successors, instance.invariant, instance.goal, name=name)

    return Case("ending", name, why, instance, search, expect)


def _repair(**budgets: int | bool | str) -> Instance:
    return Instance(tier=False, keys=0, **budgets)  # type: ignore[arg-type]


def _upload(**budgets: int | bool | str) -> Instance:
    return Instance(**{"servers": 3, "spans": 1, "keys": 2, **budgets})  # type: ignore[arg-type]


TIER_RIGHT = [
    _tier("repair", "two disks, one after the other, lost or rotten", _repair(faults=2, rot=True)),
    _tier("repair-suspected", "a disk lost, two living servers taken for dead", _repair(faults=1, suspicions=2)),
    _tier(
        "repair-late-drops", "directives that outlive their reason", _repair(faults=2, suspicions=1, late_drops=True)
    ),
    _tier("repair-two-members", "made while servers were few", _repair(members="WW", faults=1, suspicions=1)),
    _tier("tier-two-objects", "uploaded as two objects", Instance(keys=2)),
    _tier("tier-read", "a reader with a plan of any age", _upload(keys=1, reader=True)),
    _tier("tier-spoils", "the store keeps something else, a put is lost or late", _upload(spoils=1, losses=1)),
    _tier("tier-late", "a deadline passes under a living uploader", _upload(lates=1, losses=1), large=True),
    _tier("tier-trim", "trimmed at any moment", _upload(lates=1, trim=True), large=True),
    _tier(
        "repair-all",
        "disks, rot, a server away, living ones taken for dead, late directives",
        _repair(faults=2, rot=True, suspicions=2, downs=1, late_drops=True),
        large=True,
    ),
    _tier(
        "repair-five-servers",
        "the same among five servers",
        _repair(servers=5, faults=2, rot=True, suspicions=1, late_drops=True),
    ),
    _tier("tier-faults", "a disk lost or rotten on the way", _upload(servers=4, faults=1, rot=True), large=True),
    _tier("tier-hot-stays", "hot copies kept and repaired", _upload(servers=4, faults=1, hot_stays=True)),
    _tier(
        "tier-two-objects-late",
        "two objects, a disk lost or rotten, a deadline that passes",
        Instance(servers=3, keys=4, faults=1, rot=True, lates=1),
        large=True,
    ),
    _tier(
        "tier-spoils-late",
        "spoiled, lost and late puts, and a deadline that passes",
        _upload(keys=3, spoils=1, lates=1, losses=1),
        large=True,
    ),
    _tier(
        "tier-trim-faults",
        "trimmed, a disk lost, a deadline that passes",
        _upload(faults=1, lates=1, trim=True),
        large=True,
    ),
    _tier(
        "tier-read-faults",
        "a reader, a disk lost, a server away",
        _upload(keys=3, faults=1, downs=1, reader=True),
        large=True,
    ),
    _tier(
        "tier-suspected",
        "a disk lost, a living uploader taken for dead",
        _upload(servers=4, keys=3, faults=1, suspicions=1),
        large=True,
    ),
]

TIER_WRONG = [
    _tier("drop-hot-before-commit", "hot copies go once an upload is prepared",
          _upload(wrong="drop-hot-before-commit"), "RECORD-LOST"),
    _tier("commit-without-verify", "what was sent is taken for what is stored",
          _upload(wrong="commit-without-verify", spoils=1), "COMMITTED-WRONG"),
    _tier("key-reuse", "one key for a span, whoever uploads it",
          _upload(wrong="key-reuse", spoils=1, lates=1), "KEY-CHANGED"),
    _tier("two-commits-of-one-span", "no check that an object starts where the last one ended",
          _upload(wrong="two-commits-of-one-span"), "SPAN-TWICE"),
    _tier("delete-a-committed-object", "deleted by deadline alone, not given up first",
          _upload(wrong="delete-a-committed-object", lates=1), "COMMITTED-MISSING"),
    _tier("delete-without-grace", "deleted while the upload may still be on its way",
          _upload(wrong="delete-without-grace", lates=1), "GARBAGE-FOR-EVER"),
    _tier("collect-before-delete", "forgotten before it is gone from the store",
          _upload(wrong="collect-before-delete", lates=1), "GARBAGE-FOR-EVER"),
    _tier("upload-without-checksum", "an object built from rot",
          _upload(wrong="upload-without-checksum", faults=1, rot=True), "COMMITTED-WRONG"),
    _tier("spoiled-key-retried-for-ever", "a spoiled key is tried again and again",
          _upload(wrong="spoiled-key-retried-for-ever", spoils=1), "dead-end"),
    _tier("reader-not-re-resolving", "a reader that does not ask again where the range is",
          _upload(wrong="reader-not-re-resolving", keys=1, reader=True), "READER-STUCK"),
    _tier("serve-without-checksum", "a reader is served rot",
          _repair(wrong="serve-without-checksum", faults=1, rot=True, reader=True), "WRONG-BYTES"),
    _tier("repair-from-partial", "a copy of a partial replica passes for whole",
          _repair(wrong="repair-from-partial", suspicions=2), "RECORD-LOST"),
    _tier("count-a-lost-incarnation-as-whole", "a server without its disk keeps its identity",
          _repair(wrong="count-a-lost-incarnation-as-whole", faults=1), "dead-end"),
    _tier("drop-superfluous-too-early", "a replaced replica goes before others are whole",
          _repair(wrong="drop-superfluous-too-early", faults=1, suspicions=1), "RECORD-LOST"),
    _tier("count-what-is-being-dropped", "a replica that is told to go still counts as whole",
          _repair(wrong="count-what-is-being-dropped", faults=1, suspicions=2), "RECORD-LOST"),
]  # fmt: skip

SEAL_RIGHT = [
    _seal("seal", "three records, a disk lost", Seal(records=3, disks=1)),
    _seal("seal-rot", "a disk lost, or damaged at its tail or in its middle", Seal(disks=1, rot=True)),
    _seal("seal-torn", "power lost: a torn last write", Seal(restarts=1)),
    _seal("seal-torn-and-gone", "a torn last write and a disk lost for good", Seal(restarts=1, disks=1)),
    _seal("seal-two-replicas", "two replicas; a disk lost and a torn last write", Seal(replicas=2, disks=1, restarts=1)),
    _seal("seal-two-replicas-rot", "two replicas; one damaged", Seal(replicas=2, disks=1, rot=True, restarts=1)),
    _seal("seal-all-torn", "power lost everywhere", Seal(restarts=3), large=True),
    _seal("seal-rot-and-torn", "damage and a torn write", Seal(disks=1, rot=True, restarts=1), large=True),
    _seal("seal-gone-and-all-torn", "a disk lost and power lost twice", Seal(disks=1, restarts=2), large=True),
    _seal("seal-two-recoverers", "two recoverers, a disk lost", Seal(recoverers=2, disks=1), large=True),
    _seal("seal-two-recoverers-torn", "two recoverers, a torn write and a disk lost",
          Seal(records=1, recoverers=2, disks=1, restarts=1), large=True),
    _seal("seal-active", "the active seal and a recoverer, a disk lost", Seal(active=True, disks=1), large=True),
    _seal("seal-active-torn", "the active seal and a recoverer, a torn write and a disk lost",
          Seal(records=1, active=True, disks=1, restarts=1), large=True),
    _seal("seal-active-two-recoverers", "the active seal and two recoverers", Seal(records=1, active=True, recoverers=2,
          disks=1), large=True),
    _seal("seal-two-recoverers-3", "two recoverers, three records", Seal(records=3, recoverers=2, disks=1), large=True),
    _seal("seal-two-recoverers-rot", "two recoverers, damage and a torn write",
          Seal(records=1, recoverers=2, disks=1, rot=True, restarts=1), large=True),
    _seal("seal-active-3", "the active seal, three records", Seal(records=3, active=True, disks=1), large=True),
    _seal("seal-active-rot", "the active seal, damage and a torn write",
          Seal(active=True, disks=1, rot=True, restarts=1), large=True),
    _seal("seal-3-of-5", "three acks of five, two disks lost or damaged",
          Seal(records=1, replicas=5, acks=3, disks=2, rot=True), large=True),
    _seal("seal-3-of-3", "three acks of three, two disks", Seal(acks=3, disks=2), large=True),
    _seal("seal-2-of-4", "two acks of four, a disk lost or damaged", Seal(replicas=4, disks=1, rot=True), large=True),
    _seal("seal-3-of-4", "three acks of four, two disks", Seal(replicas=4, acks=3, disks=2), large=True),
]  # fmt: skip

READER_RIGHT = [
    _seal("reader", "readers and a recoverer", Seal(reader=AT_ONCE)),
    _seal("reader-in-turn", "answers of any age; the active seal and a recoverer",
          Seal(records=1, active=True, reader=IN_TURN)),
    _seal("reader-disk", "the same, a disk lost", Seal(disks=1, reader=AT_ONCE)),
    _seal("reader-torn", "the same, power lost", Seal(restarts=1, reader=AT_ONCE)),
    _seal("reader-active-alone", "readers and the active seal: the writer gets there by itself, whatever they prove",
          Seal(records=3, active=True, recoverers=0, reader=AT_ONCE)),
    _seal("reader-active-alone-disk", "the same, a disk lost", Seal(active=True, recoverers=0, disks=1, reader=AT_ONCE)),
    _seal("reader-active", "readers, the active seal and a recoverer", Seal(active=True, reader=AT_ONCE)),
    _seal("reader-active-goes-on", "the writer goes on where there is no place for the next range",
          Seal(records=1, active=True, disks=1, reader=AT_ONCE, goes_on=True)),
    _seal("reader-active-goes-on-2", "the same, two records", Seal(active=True, reader=AT_ONCE, goes_on=True), large=True),
    _seal("reader-in-turn-goes-on", "the same, answers of any age, three records, the writer alone",
          Seal(records=3, active=True, recoverers=0, reader=IN_TURN, goes_on=True), large=True),
    _seal("reader-active-rot", "the same, damage", Seal(records=1, active=True, disks=1, rot=True, reader=AT_ONCE)),
    _seal("reader-active-torn", "the same, power lost and a disk lost",
          Seal(records=1, active=True, disks=1, restarts=1, reader=AT_ONCE)),
    _seal("reader-3-of-3", "three acks of three, two disks", Seal(acks=3, disks=2, reader=AT_ONCE)),
    _seal("reader-two-replicas", "two replicas; answers of any age, a disk lost and power lost",
          Seal(records=1, replicas=2, active=True, disks=1, restarts=1, reader=IN_TURN)),
    _seal("reader-in-turn-two-records", "answers of any age; the active seal and a recoverer, two records",
          Seal(active=True, reader=IN_TURN), large=True),
    _seal("reader-in-turn-alone", "the same with the writer alone; a disk lost, power lost",
          Seal(active=True, recoverers=0, disks=1, restarts=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-active-rot", "the same, damage",
          Seal(records=1, active=True, disks=1, rot=True, reader=IN_TURN), large=True),
    _seal("reader-in-turn-active-torn", "the same, power lost and a disk lost",
          Seal(records=1, active=True, disks=1, restarts=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-active-two-recoverers", "the same with two recoverers",
          Seal(records=1, active=True, recoverers=2, reader=IN_TURN), large=True),
    _seal("reader-in-turn-rot", "answers of any age; a recoverer, damage",
          Seal(disks=1, rot=True, reader=IN_TURN), large=True),
    _seal("reader-in-turn-torn", "the same, power lost", Seal(restarts=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-two-recoverers", "the same, two recoverers and a disk lost",
          Seal(records=1, recoverers=2, disks=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-3-of-3", "three acks of three, the active seal, two disks",
          Seal(records=1, acks=3, active=True, disks=2, reader=IN_TURN), large=True),
    _seal("reader-in-turn-disk", "two records, the active seal and a recoverer, a disk lost",
          Seal(active=True, disks=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-3-of-5", "three acks of five, a disk lost",
          Seal(records=1, replicas=5, acks=3, disks=1, reader=IN_TURN), large=True),
    _seal("reader-in-turn-2-of-4", "two acks of four, a disk lost",
          Seal(records=1, replicas=4, disks=1, reader=IN_TURN), large=True),
    _seal("reader-active-disk", "readers, the active seal and a recoverer, a disk lost",
          Seal(active=True, disks=1, reader=AT_ONCE), large=True),
    _seal("reader-active-power", "the same, power lost", Seal(active=True, restarts=1, reader=AT_ONCE), large=True),
    _seal("reader-active-rot-and-torn", "the same, damage and power lost",
          Seal(records=1, active=True, disks=1, rot=True, restarts=1, reader=AT_ONCE), large=True),
    _seal("reader-active-two-recoverers", "the same, two recoverers and a disk lost",
          Seal(records=1, active=True, recoverers=2, disks=1, reader=AT_ONCE), large=True),
    _seal("reader-two-recoverers", "readers, two recoverers, a disk lost",
          Seal(recoverers=2, disks=1, reader=AT_ONCE), large=True),
    _seal("reader-two-recoverers-rot", "the same, damage and power lost",
          Seal(records=1, recoverers=2, disks=1, rot=True, restarts=1, reader=AT_ONCE), large=True),
    _seal("reader-3-of-5", "three acks of five, two disks lost or damaged",
          Seal(records=1, replicas=5, acks=3, disks=2, rot=True, reader=AT_ONCE), large=True),
    _seal("reader-2-of-4", "two acks of four, a disk lost", Seal(replicas=4, disks=1, reader=AT_ONCE), large=True),
    _seal("reader-2-of-4-active", "the same with the active seal",
          Seal(records=1, replicas=4, active=True, disks=1, reader=AT_ONCE), large=True),
]  # fmt: skip

READER_WRONG = [
    _seal("proof-without-arbitration", "what A replicas hold is believed at once",
          Seal(active=True, reader=IN_TURN, wrong="proof-without-arbitration"), "DIRTY-READ"),
    _seal("floor-ignored", "a seal below the floor is taken",
          Seal(active=True, reader=IN_TURN, wrong="floor-ignored"), "DIRTY-READ"),
    _seal("floor-after-seal", "a reader is told its own end, though the range was sealed at another",
          Seal(active=True, reader=IN_TURN, wrong="floor-after-seal"), "DIRTY-READ"),
    _seal("floor-goes-down", "the last proof counts, not the highest",
          Seal(active=True, reader=AT_ONCE, wrong="floor-goes-down"), "DIRTY-READ"),
    _seal("floor-forgotten", "floors in the memory of the placement driver's leader",
          Seal(active=True, reader=IN_TURN, wrong="floor-forgotten"), "DIRTY-READ"),
    _seal("confirm-while-frozen", "replicas are told of acks that came after the freeze",
          Seal(active=True, reader=AT_ONCE, wrong="confirm-while-frozen"), "DIRTY-READ"),
    _seal("proof-by-one", "what one replica holds", Seal(reader=IN_TURN, wrong="proof-by-one"), "FLOOR-ABOVE-END"),
    _seal("proof-like-a-seal", "who does not answer may hold everything",
          Seal(reader=IN_TURN, wrong="proof-like-a-seal"), "FLOOR-ABOVE-END"),
    _seal("proof-by-who-answers", "fewer than A answers, and what all of these hold",
          Seal(reader=IN_TURN, wrong="proof-by-who-answers"), "FLOOR-ABOVE-END"),
    _seal("proof-of-unflushed", "what a replica was sent, flushed or not",
          Seal(records=1, restarts=1, reader=IN_TURN, wrong="proof-of-unflushed"), "FLOOR-ABOVE-END"),
    _seal("writer-ignores-floor", "refused, the writer asks for the same end again",
          Seal(active=True, recoverers=0, reader=AT_ONCE, wrong="writer-ignores-floor"), "dead-end"),
    _seal("confirms-all-it-sent", "refused, the writer takes all it sent for acked",
          Seal(active=True, reader=AT_ONCE, wrong="confirms-all-it-sent"), "ACKED-LOST"),
    _seal("confirm-goes-back", "the writer goes on, and forgets the floor that it took for confirmed",
          Seal(active=True, reader=AT_ONCE, goes_on=True, wrong="confirm-goes-back"), "CONFIRM-WENT-BACK"),
    _seal("late-seal", "a copy of a seal that was refused for want of a place is carried out later",
          Seal(active=True, goes_on=True, wrong="late-seal"), "ACKED-TRUNCATED"),
    _seal("doubtful-is-complete", "all have answered, one of them after its tail rotted",
          Seal(disks=1, rot=True, reader=AT_ONCE, wrong="doubtful-is-complete"), "SHORT-BUT-EXACT"),
]  # fmt: skip

SEAL_WRONG = [
    _seal("min", "the smallest of the answers", Seal(wrong="min"), "ACKED-TRUNCATED"),
    _seal("ack-formula", "the A-th largest of the answers that are in", Seal(wrong="ack-formula"), "ACKED-TRUNCATED"),
    _seal("seal-one", "one answer is enough", Seal(wrong="seal-one"), "ACKED-TRUNCATED"),
    _seal("seal-one-max-copy", "one answer, and copies", Seal(wrong="seal-one-max-copy"), "ACKED-TRUNCATED"),
    _seal("third-unfenced", "two answers and the third's unfenced end", Seal(wrong="third-unfenced"), "ACKED-TRUNCATED"),
    _seal("read-then-fence", "ends are read before the fence", Seal(wrong="read-then-fence"), "ACKED-TRUNCATED"),
    _seal("no-copy", "committed without copies", Seal(wrong="no-copy", disks=1), "SEALED-HOLE"),
    _seal("wiped-answers", "an empty disk answers", Seal(wrong="wiped-answers", disks=1), "ACKED-TRUNCATED"),
    _seal("wiped-accepts", "an empty disk takes appends", Seal(wrong="wiped-accepts", disks=1), "ACKED-TRUNCATED"),
    _seal("doubtful-counts", "a damaged tail counts, and nobody is gone",
          Seal(wrong="doubtful-counts", disks=1, rot=True), "ACKED-TRUNCATED"),
    _seal("doubt-never-counts", "a torn tail counts for nothing even when a member is gone",
          Seal(wrong="doubt-never-counts", disks=1, restarts=1), "dead-end"),
    _seal("always-a-copies", "A answers are waited for even when fewer members are left",
          Seal(wrong="always-a-copies", replicas=2, disks=1), "dead-end"),
    _seal("fence-volatile", "a fence in memory", Seal(wrong="fence-volatile", restarts=1), "ACKED-TRUNCATED"),
    _seal("ack-before-fsync", "acked before it is flushed", Seal(wrong="ack-before-fsync", restarts=1), "ACKED-TRUNCATED"),
    _seal("gaps", "an append beyond the log's end is taken", Seal(wrong="gaps", disks=1), "ACKED-LOST"),
    _seal("stale-recovery", "late copies are taken, and acked again when fenced",
          Seal(wrong="stale-recovery", recoverers=2), "ACKED-TRUNCATED"),
    _seal("pd-last-wins", "a later end replaces the first", Seal(wrong="pd-last-wins", recoverers=2), "END-CHANGED"),
    _seal("pd-ok-without-end", "a late seal is told OK, not the end", Seal(wrong="pd-ok-without-end", recoverers=2), "BELIEF"),
    _seal("no-freeze", "acks go on after the active seal", Seal(wrong="no-freeze", active=True), "ACKED-TRUNCATED"),
    _seal("late-cut", "a replica cuts its tail for an older epoch", Seal(wrong="late-cut", active=True, disks=1),
          "SEALED-HOLE"),
    _seal("read-log-end", "readers are served beyond the confirm offset", Seal(wrong="read-log-end"), "DIRTY-READ"),
    _seal("two-disks", "two disks lost at once", Seal(disks=2), "ACKED-LOST", bound=True),
    _seal("seal-3-of-3-rot", "three acks of three: one disk lost and another's tail rotten, no end is decided",
          Seal(acks=3, disks=2, rot=True), "dead-end", bound=True),
]  # fmt: skip

REPORTS = [
    _reports("reports", "heartbeats lost, late, overtaken", Reports()),
    _reports("reports-new-leader", "and two changes of the leader", Reports(late=1, leaders=2)),
    _reports("reports-restart", "and a start of the server", Reports(restarts=1), large=True),
    _reports("reports-restarts", "and two starts, three heartbeats late", Reports(sends=6, restarts=2, late=3), large=True),
    _reports("take-what-was-overtaken", "an old heartbeat is believed after a newer one",
             Reports(wrong="take-what-was-overtaken"), "COUNTED-BUT-GOING"),
    _reports("number-from-one-again", "a new process numbers its heartbeats as the old one did",
             Reports(restarts=1, wrong="number-from-one-again"), "COUNTED-BUT-GOING"),
    _reports("believe-the-first-heard", "a new leader believes the first heartbeat that comes",
             Reports(late=1, leaders=1, wrong="believe-the-first-heard"), "COUNTED-BUT-GOING"),
    _reports("forget-what-was-told", "what was told to go counts until it is reported gone",
             Reports(wrong="count-what-was-told-to-go"), "COUNTED-BUT-GOING"),
    _reports("reports-two-late", "two heartbeats given up before a leader's time reach it", Reports(leaders=1),
             "COUNTED-BUT-GOING", bound=True),
]  # fmt: skip

ENDING = [
    _ending("ending", "the end is learned late, among late appends, reads, repairs and an upload"),
    _ending("append-after-the-end", "a replica that knows the end takes appends", "HELD-BEYOND-THE-END"),
    _ending("learn-without-a-cut", "the end is noted, the tail stays", "HELD-BEYOND-THE-END"),
    _ending("serve-to-the-log-end", "readers are served what is not confirmed", "READ-BEYOND-THE-END"),
    _ending("repair-beyond-the-end", "any source, all that it has, taken unchecked", "HELD-BEYOND-THE-END"),
    _ending("upload-by-length", "long enough is taken for whole", "OBJECT-IS-NOT-THE-RANGE"),
    _ending("upload-in-part", "uploaded by who knows the end and lacks records", "OBJECT-IS-NOT-THE-RANGE"),
]

CASES = (
    SEAL_WRONG
    + READER_WRONG
    + SEAL_RIGHT
    + READER_RIGHT
    + ENDING
    + TIER_WRONG
    + TIER_RIGHT
    + REPORTS
    + TOPIC
    + TRANSACTION
    + STAGING
    + REPACK
)
