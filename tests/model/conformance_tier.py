"""Walks through the tier model, taken by the product in step: the driver's machine, view and planner, and the servers.

Each label of a step is carried out with the product's own classes; then what the model says of members, objects, reports
and replicas must be what the product holds. At each heartbeat the planner must want what the model wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from rangelog_core.errors import Corruption, PreconditionFailed, RangelogError
from rangelog_core.ids import ReplicaId
from rangelog_pd.reconcile.commands import commands
from rangelog_pd.reconcile.directives import Planner
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_pd.reconcile.view import ClusterView, drop_task_id
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.model import tier_state as t
from tests.model.conformance_driver import Driver
from tests.model.conformance_objects import Objects
from tests.model.conformance_servers import Server
from tests.model.conformance_walks import Step
from tests.model.tier_steps import TierModel

END, KEY = 2, (1, 0)
SUSPECT_MS, DEAD_MS = 1_500.0, 5_000.0
SILENT_MS = DEAD_MS + REPLACE_AFTER_MS
WEIGHTS = {
    "withdrawn": 20,
    "from rot": 3,
    "is lost": 0.5,
    "is trimmed": 0.1,
    "given up": 0.4,
    "LOSES": 0.3,
    "ROTS": 0.3,
    "stops": 0.3,
    "place goes": 0.5,
    "reports": 0.7,
}
"""How likely a step with this word is beside the others."""
_DATA = {
    None: t.ABSENT,
    pd_pb2.REPLICA_STATE_INCOMPLETE: t.PARTIAL,
    pd_pb2.REPLICA_STATE_SEALED: t.WHOLE,
    pd_pb2.REPLICA_STATE_QUARANTINED: t.QUARANTINED,
}

STEPS = {
    r"s(\d) LOSES ITS DISK": "_lose_disk",
    r"s(\d)'s replica ROTS": "_rot",
    r"s(\d) stops": "_nothing",  # cut off: what it said last is all that is known
    r"s(\d) starts": "_nothing",
    r"s(\d) starts with an empty disk, as a new incarnation": "_start_anew",
    r"s(\d) finds the rot(?: as it builds)?": "_find_rot",
    r"s(\d) reports(?:, told to (\w+))?": "_report",
    r"s(\d)'s old directive is withdrawn": "_withdraw",
    r"s(\d) drops its replica": "_drop",
    r"s(\d) copies record (\d)": "_copy",
    r"s(\d) copies from rot: noticed": "_copy_from_rot",
    r"s(\d)'s place goes to s(\d)": "_replace",
    r"s(\d) becomes a member too": "_join",
    r"the range is trimmed": "_trim",
    r"the hot copies are given up": "_drop_hot",
    r"s(\d) is told to upload": "_nothing",
    r"s(\d) may not prepare": "_may_not_prepare",
    r"s(\d) prepares o(\d)": "_prepare",
    r"s(\d) is given o(\d) again": "_prepare",
    r"s(\d) builds its object": "_build",
    r"s(\d) has nothing to build from": "_nothing_to_build",
    r"s(\d) puts o(\d)(, the store keeps it WRONG)?": "_put",
    r"s(\d)'s put of o(\d): landed, answer LOST": "_put",
    r"s(\d)'s put of o(\d) is LATE": "_nothing",
    r"o(\d) is there already": "_there_already",
    r"the late put of o(\d) lands": "_late_put",
    r"the late put of o(\d) is lost": "_nothing",
    r"s(\d) verified o(\d)": "_verified",
    r"s(\d) cannot verify o(\d)": "_cannot_verify",
    r"s(\d) finds o(\d) spoiled": "_spoiled",
    r"s(\d) commits o(\d)": "_commit",
    r"s(\d)'s commit of o(\d) is refused": "_commit_refused",
    r"o(\d) is given up": "_give_up",
    r"o(\d) is to be deleted": "_to_be_deleted",
    r"o(\d) is deleted": "_delete",
    r"the delete of o(\d) is lost": "_nothing",
    r"o(\d) is collected": "_collect",
}
"""The labels of the model's steps, and the method of `TierWalk` that takes each; the words in brackets are its arguments."""


class TierWalk:
    """The product's side of one walk. `before` and `after` are the model's states around the step at hand."""

    def __init__(self, instance: t.Instance) -> None:
        self.instance = instance
        self.model = TierModel(instance)
        self.before = self.after = b""
        self.incarnations = [number + 1 for number in range(instance.servers)]
        replicas = [ReplicaId(f"s{number}", number + 1) for number in range(instance.servers)]
        self.driver = Driver(replicas, 2, size=3, placed=len(instance.members), tiered=True)
        self.driver.seal(1, END, create_next=True)
        self.now_ms = 1_000_000.0
        self.view = ClusterView(SUSPECT_MS, DEAD_MS)
        self.servers: list[Server | None] = []
        for number, replica in enumerate(replicas):
            self.view.registered(replica.server, replica.incarnation, self.now_ms)
            server = Server()
            held = instance.members[number] if number < len(instance.members) else "A"
            if held != "A":
                server.hold(END if held == "W" else 1, END)
            self.servers.append(server)
            self._beat(number)
        self.objects = Objects(self.driver, self.instance.spans)
        self.taken = dict.fromkeys(STEPS, 0)

    def take(self, label: str, before: bytes, after: bytes) -> bool:
        """Do as the label says."""
        self.before, self.after = before, after
        for pattern, method in STEPS.items():
            match = re.fullmatch(pattern, label)
            if match is not None:
                words = [int(word) if word and word.isdigit() else word for word in match.groups()]
                self._pass_deadlines()
                getattr(self, method)(*words)
                self.taken[pattern] += 1
                return True
        raise AssertionError(f"the product's side of {label!r} is missing")

    def _pass_deadlines(self) -> None:
        late = self.model.at + t.LATES
        if self.after[late] < self.before[late]:
            self.objects.pass_deadlines()

    def _server(self, number: int) -> Server:
        server = self.servers[number]
        assert server is not None
        return server

    def _member(self, number: int) -> common_pb2.Replica:
        return common_pb2.Replica(server=f"s{number}", incarnation=self.incarnations[number])

    def _column(self, state: bytes, number: int, what: int) -> int:
        return state[self.model.servers[number] + what]

    # ---- faults

    def _lose_disk(self, number: int) -> None:
        self.servers[number] = None

    def _rot(self, number: int) -> None:
        self._server(number).rot_unseen(0)

    def _start_anew(self, number: int) -> None:
        old = self.incarnations[number]
        self.incarnations[number] += 100
        self.servers[number] = Server()
        self.driver.register(f"s{number}", self.incarnations[number])
        self.view.registered(f"s{number}", self.incarnations[number], self.now_ms)
        self.objects.give_up_all_of(f"s{number}", old)

    def _find_rot(self, number: int) -> None:
        try:
            self._server(number).read(0)
        except Corruption:
            return
        raise AssertionError("the rot was read")

    # ---- heartbeats and directives

    def _beat(self, number: int) -> dict[str, pd_pb2.Directive]:
        """One heartbeat; return what is wanted of the replica."""
        name, report = f"s{number}", self._server(number).report()
        at_hand = self.before and self._column(self.before, number, t.ORDERS) & t.DROP and self.instance.late_drops
        request = pd_pb2.HeartbeatRequest(
            server=name,
            incarnation=self.incarnations[number],
            sequence=self.view.servers[name].sequence + 1,
            complete=True,
            replicas=[report] if report is not None else [],
            tasks=[pd_pb2.TaskReport(task_id=drop_task_id(KEY, name))] if at_hand else [],
        )
        self.view.heartbeat(request, self.now_ms, self.driver.wall_ms)
        directives = self._planner().directives(name, self.incarnations[number])
        return {each.WhichOneof("action") or "": each for each in directives}

    def _planner(self) -> Planner:
        return Planner(self.driver.machine.state, self.view, self.instance.tier, self.now_ms, self.driver.wall_ms)

    def _report(self, number: int, told: str | None) -> None:
        wanted = self._beat(number)
        assert ("drop_replica" in wanted) == (told == "drop"), sorted(wanted)
        assert ("copy_replica" in wanted) == (told == "copy"), sorted(wanted)
        if "upload_range" in wanted and self._column(self.after, number, t.STEP) == t.IDLE:
            late = bytearray(self.after)  # whoever is at it may seem dead as well as late
            late[self.model.at + t.LATES] = 1
            assert self.model._may_upload(bytes(late), self.model.servers[number])

    def _withdraw(self, number: int) -> None:
        self.before = b""  # the directive is not at hand any more
        assert "drop_replica" not in self._beat(number)

    def _drop(self, number: int) -> None:
        self._server(number).drop()

    def _copy(self, number: int, record: int) -> None:
        """From a server whose replica is whole, as the model means it."""
        sources = [
            other
            for other in range(self.instance.servers)
            if other != number
            and self._column(self.before, other, t.DATA) == t.WHOLE
            and self._column(self.before, other, t.UP) == t.IS_UP
        ]
        self._server(number).repair(self._server(sources[0]), END)

    def _copy_from_rot(self, number: int) -> None:
        rotten = [
            other
            for other in range(self.instance.servers)
            if self._column(self.before, other, t.DATA) == t.ROTTEN
            and self._column(self.after, other, t.DATA) == t.QUARANTINED
        ]
        self._find_rot(rotten[0])

    def _replace(self, number: int, target: int) -> None:
        """The driver itself proposes to replace the member, if perhaps by another server; the model chose this one."""
        lost = self._column(self.before, number, t.MEMBER) == t.LOST
        if not lost:
            self.view.servers[f"s{number}"].heard_ms = self.now_ms - SILENT_MS
        gone = self._lost_member(number) if lost else self._member(number)
        wanted = commands(self.driver.machine.state, self.view, self.now_ms, self.driver.wall_ms)
        replaced = [each.replace_replica.lost for each in wanted if each.HasField("replace_replica")]
        spare = any(view.heard_ms == self.now_ms for name, view in self.view.servers.items() if self._spare(name))
        at_hand = self.view.holders(self.driver.machine.state, self.driver.machine.state.range(*KEY), self.now_ms)
        assert gone in replaced or not spare or not at_hand, "the driver leaves a lost member in its place"
        self.driver.replace(self._member(target), gone)

    def _spare(self, name: str) -> bool:
        return all(each.server != name for each in self.driver.members_now())

    def _lost_member(self, number: int) -> common_pb2.Replica:
        return next(each for each in self.driver.members_now() if each.server == f"s{number}")

    def _join(self, number: int) -> None:
        self.driver.replace(self._member(number), None)

    # ---- the range

    def _trim(self) -> None:
        request = pd_pb2.TrimStreamRequest(name="s", trim_offset=END)
        self.driver.do(pd_pb2.TrimStreamResponse, trim_stream=request)

    def _drop_hot(self) -> None:
        self.driver.do(pd_pb2.ListTasksResponse, drop_hot=pd_state_pb2.DropHot(stream_id=1, range_index=0))

    def _nothing(self, *words: object) -> None:
        """Nothing that the product would notice."""

    # ---- uploads: see conformance_objects

    def _spoiled_object(self, number: int) -> int:
        return self._column(self.before, number, t.TASK)

    def _may_not_prepare(self, number: int) -> None:
        try:
            self.objects.prepare(self._member(number), self._spoiled_object(number))
        except RangelogError:
            return
        raise AssertionError("the driver hands out a key")

    def _prepare(self, number: int, item: int) -> None:
        given = self.objects.prepare(self._member(number), self._spoiled_object(number))
        assert given == item

    def _build(self, number: int) -> None:
        for offset in range(END):
            self._server(number).read(offset)

    def _nothing_to_build(self, number: int) -> None:
        core = self._server(number).core
        assert core is None or not core.complete

    def _put(self, number: int, item: int, wrong: str | None = None) -> None:
        self.objects.put(item, wrong=bool(wrong))

    def _there_already(self, item: int) -> None:
        assert self.objects.content(item)

    def _late_put(self, item: int) -> None:
        self.objects.put(item)

    def _verified(self, number: int, item: int) -> None:
        assert not self.objects.difference(item)

    def _cannot_verify(self, number: int, item: int) -> None:
        assert self.objects.content(item) is None

    def _spoiled(self, number: int, item: int) -> None:
        assert self.objects.difference(item)

    def _commit(self, number: int, item: int) -> None:
        self.objects.commit(item, self._member(number))

    def _commit_refused(self, number: int, item: int) -> None:
        try:
            self.objects.commit(item, self._member(number))
        except RangelogError:
            return
        raise AssertionError("the driver takes the object")

    def _give_up(self, item: int) -> None:
        self.objects.give_up(item)

    def _to_be_deleted(self, item: int) -> None:
        keys = self._keys_to_delete()
        assert keys is None or self.objects.key(item) in keys

    def _delete(self, item: int) -> None:
        self.objects.delete(item)

    def _collect(self, item: int) -> None:
        self.objects.collect(item)

    def _keys_to_delete(self) -> set[str] | None:
        """What a server is told to delete long after every deadline; None when no server is heard of."""
        state = self.driver.machine.state
        planner = Planner(state, self.view, True, self.now_ms, self.driver.wall_ms + 10**9)
        directives = [each for name in self.view.servers for each in planner._deletions(name)]
        alive = any(view.heard_ms == self.now_ms for view in self.view.servers.values())
        return {key for each in directives for key in each.delete_objects.keys} if alive else None

    # ---- see conformance_walks.Product

    def start(self) -> bytes:
        """The first state, with the servers in the order of their names."""
        state = self.instance.initial()
        columns = [state[at : at + t.SERVER_WIDTH] for at in self.model.servers]
        order = (t.WHOLE, t.PARTIAL, t.ABSENT)
        columns.sort(key=lambda one: (one[t.MEMBER] != t.LIVE, order.index(one[t.DATA])))
        return b"".join(columns) + state[self.instance.objects_at :]

    def steps(self, state: bytes) -> Iterator[tuple[str, bytes]]:
        """What the model can do from here."""
        return ((label, bytes(changed)) for label, changed in self.model._all(state))

    def fold(self, state: bytes) -> bytes:
        """The state with the servers in a fixed order."""
        return self.instance.canonical(state)

    def narrowed(self, state: bytes, offered: Sequence[Step]) -> Sequence[Step]:
        """All of it is open."""
        return offered

    def compare(self, state: bytes, random: Random) -> None:
        """Assert that the product stands where the model does."""
        trimmed = bool(state[self.model.at + t.TRIMMED])
        members = {(each.server, each.incarnation) for each in self.driver.members_now()}
        for number in range(self.instance.servers):
            member, name = self._column(state, number, t.MEMBER), f"s{number}"
            now = (name, self.incarnations[number]) in members
            before = any(server == name for server, _ in members) and not now
            if self._column(state, number, t.UP) != t.DISK_GONE:
                assert (now, before) == (member == t.LIVE, member == t.LOST), f"{name} is a member or not"
            server = self.servers[number]
            report = server.report() if server is not None else None
            data = _DATA[report.state if report is not None else None]
            wanted = self._column(state, number, t.DATA)
            assert data == (t.WHOLE if wanted == t.ROTTEN else wanted), f"what {name} holds"
        if not trimmed:
            found = self.driver.machine.state.range(1, 0)
            assert found.tiered_end_offset == self.objects.border(state[self.model.at + t.TIERED])
            assert found.hot_dropped == bool(state[self.model.at + t.HOT_DROPPED])
            self._hot_stays_until_covered(state)
        kept = self._keys_to_delete() or set()
        for number, at in enumerate(self.model.objects):
            self.objects.compare(number, state[at + t.STATE], state[at + t.CONTENT], kept)

    def _hot_stays_until_covered(self, state: bytes) -> None:
        if state[self.model.at + t.TIERED] == self.instance.spans or state[self.model.at + t.HOT_DROPPED]:
            return
        try:
            self._drop_hot()
        except PreconditionFailed:
            return
        raise AssertionError("the hot copies of a range that is not wholly in the tier were given up")
