"""pysyncobj with our journal, snapshots, transport and rules, on virtual time, through crashes and cuts."""

from __future__ import annotations

from raft_group import RaftGroup
from raft_process import Answer
from raft_world import PlainWorld

from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import pd_pb2, pd_state_pb2

NAMES = ["pd1", "pd2", "pd3"]


def test_a_group_elects_and_answers_on_virtual_time() -> None:
    """Three members elect a leader within two virtual seconds and apply a command on all of them."""
    world = PlainWorld(1)
    group = RaftGroup(world, NAMES, snapshot_entries=50, make_machine=Machine)
    assert world.run_until(2.0, lambda: group.leader() is not None)
    request = pd_pb2.CreateStreamRequest(name="s", request_id="one")
    command = pd_state_pb2.Command(version=1, request_id="one", create_stream=request)
    answers: list[Answer] = []
    leader = group.leader()
    assert leader is not None
    world.run_until(2.0)
    group.propose(leader, command.SerializeToString(), answers.append)
    world.run_until(4.0)
    assert len(answers) == 1 and isinstance(answers[0], bytes)
    assert len({group.machine(name).snapshot() for name in NAMES}) == 1
    assert group.violations == []
    group.close()
