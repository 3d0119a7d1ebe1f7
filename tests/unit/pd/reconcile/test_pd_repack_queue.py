"""Repacks that the leader orders: found where something changes, given to servers, gone on with, bounded."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.repack_choice import COUNT_MIN, RepackRules
from rangelog_pd.reconcile import repack_queue, repack_units
from rangelog_pd.reconcile.repack_queue import FAILS_MAX_MS, PUT_OFF_MS, RepackQueue
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_pb2, pd_state_pb2

DIGEST = "sha256:" + "ab" * 32
AGE_MS = 60_000
RULES = RepackRules(target_bytes=100_000, min_age_ms=AGE_MS, trimmed_fraction=0.5)


class Packing:
    """A cluster that repacks, and a stream whose ranges of ten records have objects of 1,000 bytes."""

    def __init__(self, pd: Any, concurrency: int = 4) -> None:
        self.pd = pd
        pd.view = ClusterView(1_500, 5_000, repack_rules=RULES, repack_concurrency=concurrency)
        pd.view.start_leading(pd.now_ms)
        pd.has_tier = True
        level = pd_state_pb2.SetClusterVersion(version=FEATURE_LEVEL)
        pd.do(pd_pb2.ListTasksResponse, set_cluster_version=level)
        for name in pd.state.servers:
            pd.state.servers[name].server.formats.append(
                common_pb2.FormatVersions(format="repack", lowest=1, highest=1)
            )
            pd.beat(name)
            pd.beat(name)

    @property
    def queue(self) -> RepackQueue:
        found: RepackQueue = self.pd.view.upkeep.repacks
        return found

    def stream(self, ranges: int, name: str = "s") -> int:
        """A stream with so many ranges in the tier, and an open one behind them."""
        stream_id = int(self.pd.create_stream(name, tiered=True).stream_id)
        self.pd.open_writer(name)
        self.pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
        for index in range(ranges):
            self.add(stream_id, index)
        return stream_id

    def add(self, stream_id: int, index: int) -> None:
        """Seal the open range at ten records, and upload it."""
        self.pd.seal(stream_id, index, 1, 10 * index + 10, "rs1", "rs2", "rs3")
        self.pd.tier(stream_id, index, "rs1")

    def told(self) -> dict[str, pd_pb2.Directive]:
        """Who is told to repack now, after a round in which everybody was heard of."""
        self.pd.beat_all()
        self.pd.reconcile()
        found = {}
        for name in self.pd.state.servers:
            for each in self.pd.planned(name):
                if each.HasField("repack_objects"):
                    assert name not in found, "one at a time"
                    found[name] = each
        return found

    def prepare(self, server: str, directive: pd_pb2.Directive) -> common_pb2.Object:
        """The server asks for a key."""
        request = pd_pb2.PrepareRepackRequest(
            stream_id=directive.stream_id, object_ids=directive.repack_objects.object_ids, packer=server,
            incarnation=self.pd.state.servers[server].server.incarnation, drops_trimmed=True,
        )  # fmt: skip
        timed = pd_state_pb2.TimedPrepareRepack(request=request, deadline_ms=self.pd.wall_ms + 60_000)
        found: common_pb2.Object = self.pd.do(pd_pb2.PrepareRepackResponse, prepare_repack=timed).object
        return found

    def commit(self, prepared: common_pb2.Object, size_bytes: int) -> None:
        """The server has stored it."""
        request = pd_pb2.CommitRepackRequest(
            object_id=prepared.object_id, packer=prepared.server, size_bytes=size_bytes, digest=DIGEST
        )
        self.pd.do(pd_pb2.CommitRepackResponse, commit_repack=request)

    def carry_out(self) -> int:
        """Do all that is told; return how many repacks that were."""
        told = self.told()
        for server, directive in told.items():
            self.commit(self.prepare(server, directive), 1_000 * len(directive.repack_objects.object_ids))
        return len(told)

    def live(self, stream_id: int) -> list[tuple[int, int]]:
        """The spans of the objects that count."""
        return sorted(
            (each.start_offset, each.end_offset)
            for each in self.pd.state.objects.values()
            if each.stream_id == stream_id and each.state == common_pb2.OBJECT_STATE_COMMITTED
        )


@pytest.fixture
def packing(pd: Any) -> Packing:
    """See Packing."""
    return Packing(pd)


def test_small_neighbours_are_joined_as_they_come(packing: Packing) -> None:
    """Once there are so many; one server is told, again and again until it is done; then nothing is left."""
    stream_id = packing.stream(COUNT_MIN - 1)
    assert packing.told() == {}
    packing.add(stream_id, COUNT_MIN - 1)
    told = packing.told()
    assert len(told) == 1 and packing.told() == told
    ((_, directive),) = told.items()
    assert directive.repack_objects.stream_name == "s" and len(directive.repack_objects.object_ids) == COUNT_MIN
    assert packing.carry_out() == 1
    assert packing.live(stream_id) == [(0, 10 * COUNT_MIN)]
    assert packing.told() == {}


def test_a_few_are_joined_once_they_are_old(packing: Packing) -> None:
    """Without anything that happens meanwhile."""
    stream_id = packing.stream(3)
    assert packing.told() == {}
    packing.pd.pass_ms(AGE_MS - 1)
    assert packing.told() == {}
    packing.pd.pass_ms(1)
    assert packing.carry_out() == 1
    assert packing.live(stream_id) == [(0, 30)]
    packing.pd.pass_ms(AGE_MS)
    assert packing.told() == {}


def test_a_trim_has_its_object_written_again(packing: Packing) -> None:
    """Above the share; of an object that is near the target, too."""
    packing.stream(1)
    packing.pd.trim(5)
    assert packing.told() == {}
    packing.pd.trim(6)
    assert packing.carry_out() == 1
    assert packing.live(1) == [(6, 10)]
    packing.pd.trim(8)
    assert packing.told() == {}, "half of it"


def test_nothing_else_is_read_than_the_neighbourhood(packing: Packing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in a long stream of large objects costs a look or two, and so does a trim; a quiet round costs none."""
    stream_id = packing.stream(40)
    for each in list(packing.pd.state.objects.values()):
        if each.size_bytes:
            large = common_pb2.Object()
            large.CopyFrom(each)
            large.size_bytes = RULES.target_bytes
            packing.pd.state.put_object(large)
    packing.told()
    looks: list[int] = []
    inner = repack_units.unit_of

    def counted(state: Any, of: int, index: int) -> Any:
        looks.append(index)
        return inner(state, of, index)

    monkeypatch.setattr(repack_units, "unit_of", counted)
    monkeypatch.setattr(repack_queue, "unit_of", counted)
    packing.told()
    assert looks == []
    packing.add(stream_id, 40)
    packing.told()
    assert 1 <= len(looks) <= 3
    looks.clear()
    packing.pd.trim(7)
    packing.told()
    assert looks == [0, 1]


def test_the_next_leader_goes_on(packing: Packing) -> None:
    """What a server has begun stays its own; what nobody had begun is found again, also what is not old yet."""
    packing.stream(COUNT_MIN, "begun")
    ((server, directive),) = packing.told().items()
    packing.prepare(server, directive)
    packing.stream(COUNT_MIN, "waits")
    packing.stream(2, "young")
    packing.pd.view.start_leading(packing.pd.now_ms)
    for name in packing.pd.state.servers:
        packing.pd.beat(name)
        packing.pd.beat(name)
    told = packing.told()
    assert told[server] == directive
    assert {each.repack_objects.stream_name for each in told.values()} == {"begun", "waits"}
    while packing.carry_out():
        pass
    packing.pd.pass_ms(AGE_MS)
    assert [each.repack_objects.stream_name for each in packing.told().values()] == ["young"]


def test_a_dead_server_is_followed_by_another(packing: Packing) -> None:
    """Its prepared object is given up, and the repack is given to one that lives."""
    stream_id = packing.stream(COUNT_MIN)
    ((server, directive),) = packing.told().items()
    prepared = packing.prepare(server, directive)
    packing.pd.pass_ms(6_000)
    for name in packing.pd.state.servers:
        if name != server:
            packing.pd.beat(name, complete=False)
    packing.pd.reconcile()
    assert packing.pd.state.objects[prepared.object_id].state == common_pb2.OBJECT_STATE_DELETED
    (other,) = [
        name for name in packing.pd.state.servers if packing.queue.wanted(name, packing.pd.members(name)[0].incarnation)
    ]
    assert other != server
    (directive,) = [each for each in packing.pd.planned(other) if each.HasField("repack_objects")]
    packing.commit(packing.prepare(other, directive), 8_000)
    assert packing.live(stream_id) == [(0, 10 * COUNT_MIN)]


def test_what_was_trimmed_meanwhile_is_withdrawn(packing: Packing) -> None:
    """The rest is looked at anew."""
    stream_id = packing.stream(COUNT_MIN + 1)
    assert len(packing.told()) == 1
    packing.pd.trim(10)
    assert packing.carry_out() == 1
    assert packing.live(stream_id) == [(10, 10 * COUNT_MIN + 10)]


def test_a_failing_repack_gives_way(packing: Packing) -> None:
    """After a while it is put off, as a failing task with its last error; then any server tries it again."""
    packing = Packing(packing.pd, concurrency=1)
    packing.stream(COUNT_MIN, "bad")
    packing.stream(COUNT_MIN, "good")
    ((_, first),) = packing.told().items()
    assert first.repack_objects.stream_name == "bad"
    pd, queue = packing.pd, packing.queue
    queue.reported(first.task_id, error="CORRUPTION: damaged", now_ms=pd.now_ms)
    pd.pass_ms(int(FAILS_MAX_MS))
    pd.beat_all()
    queue.reported(first.task_id, error="CORRUPTION: damaged", now_ms=pd.now_ms)
    assert [each.repack_objects.stream_name for each in packing.told().values()] == ["good"]
    (task,) = queue.tasks(pd.state, pd.wall_ms)
    assert (task.kind, task.stream_name, task.last_error) == ("repack-objects", "bad", "CORRUPTION: damaged")
    packing.carry_out()
    assert packing.told() == {}
    pd.pass_ms(int(PUT_OFF_MS))
    assert [each.repack_objects.stream_name for each in packing.told().values()] == ["bad"]
    assert queue.tasks(pd.state, pd.wall_ms) == []


def test_servers_have_one_each_and_all_together_a_bound(packing: Packing) -> None:
    """What waits gets its turn; a server in trouble, one that is drained and one that does not know repacks get none."""
    packing = Packing(packing.pd, concurrency=3)
    for number in range(5):
        packing.stream(COUNT_MIN, f"s{number}")
    assert len(packing.told()) == 3
    packing = Packing(packing.pd, concurrency=8)
    del packing.pd.state.servers["rs1"].server.formats[:]
    mode = operations_pb2.SetServerModeRequest(server="rs2", mode=common_pb2.SERVER_MODE_CORDONED)
    packing.pd.do(operations_pb2.SetServerModeResponse, set_server_mode=mode)
    assert set(packing.told()) == {"rs3", "rs4"}
    done = sum(iter(packing.carry_out, 0))
    assert done == 5


def test_others_that_repack_are_left_alone(packing: Packing) -> None:
    """What somebody's job has begun to repack is looked at again once that may be over."""
    stream_id = packing.stream(COUNT_MIN + 1)
    ids = [each.object_id for each in packing.pd.state.objects.values() if each.range_index < 2]
    request = pd_pb2.PrepareRepackRequest(stream_id=stream_id, object_ids=ids, packer="by hand")
    timed = pd_state_pb2.TimedPrepareRepack(request=request, deadline_ms=packing.pd.wall_ms + 30_000)
    packing.pd.do(pd_pb2.PrepareRepackResponse, prepare_repack=timed)
    assert packing.told() == {}
    for _ in range(70):
        packing.pd.pass_ms(1_000)
        packing.pd.beat_all()
        packing.pd.reconcile()
    assert packing.carry_out() == 1
    assert packing.live(stream_id) == [(0, 10 * COUNT_MIN + 10)]


def test_a_full_queue_looks_at_nothing(packing: Packing, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on with what it has not looked at; the ranges to look at are bounded, too."""
    monkeypatch.setattr(repack_queue, "QUEUED_MAX", 2)
    monkeypatch.setattr(repack_queue, "CHANGED_MAX", 3)
    for number in range(6):
        packing.stream(COUNT_MIN, f"s{number}")
    assert sum(iter(packing.carry_out, 0)) == 6
    for stream_id in range(1, 7):
        assert packing.live(stream_id) == [(0, 10 * COUNT_MIN)]


def test_without_a_target_nothing_is_repacked(packing: Packing) -> None:
    """0 switches it off, and what is noted meanwhile takes no memory."""
    packing.pd.view = ClusterView(1_500, 5_000)
    packing.pd.view.start_leading(packing.pd.now_ms)
    packing.stream(COUNT_MIN + 1)
    packing.pd.trim(9)
    assert packing.told() == {}
    assert not packing.queue._changed and not packing.queue._passing
