"""The placement driver's state machine: whatever a command says, every member answers it alike and its state stays whole."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import broker_pb2, common_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed, message_changed

NOW_MS = 1_700_000_000_000
DIGEST = "sha256:" + "ab" * 32
SERVERS = {f"rs{number}": 100 + number for number in range(1, 5)}
MIDDLE = b"\x80" + bytes(15)
"""Of the key space."""
KNOWN: tuple[Any, ...] = (
    0, 1, 1, 1, 2, 2, 3, 4, 5, 10, 20, 30, 101, 101, 102, 103, 104, NOW_MS, *SERVERS, "s", "s", "s", "t", "u", "c1", "c2",
    "replicas", "acks", "durability", "compression", "tiered", "hot_retention_ms", "retention_ms", DIGEST,
    "ns", "stream.acks", "scaling", "retention", "_topic-2-shard-0", MIDDLE, bytes(16), b"",
)  # fmt: skip
"""Values of the state below, so that changed commands still mean something."""
_ACTIONS = [each.name for each in pd_state_pb2.Command.DESCRIPTOR.oneofs_by_name["action"].fields]


def replicas(*names: str) -> list[common_pb2.Replica]:
    """The servers as a placement names them."""
    return [common_pb2.Replica(server=name, incarnation=SERVERS[name]) for name in names]


def command(request_id: str = "", **action: Any) -> bytes:
    """One encoded command."""
    return pd_state_pb2.Command(
        version=FEATURE_LEVEL, request_id=request_id, now_ms=NOW_MS, **action
    ).SerializeToString()


def history() -> list[bytes]:
    """What a small cluster lives through: every action once at least, most of them to success."""
    trio = replicas("rs1", "rs2", "rs3")
    create = [
        command("c1", create_stream=pd_pb2.CreateStreamRequest(name=name, config=common_pb2.StreamConfig(tiered=True)))
        for name in ("s", "t")
    ]
    register = [
        command(
            register_server=pd_pb2.RegisterServerRequest(
                server=name, incarnation=incarnation, boot=1, data_address=f"{name}:1", log_end=5
            )
        )
        for name, incarnation in SERVERS.items()
    ]
    make = pd_pb2.CreateRangeRequest(stream_id=1, epoch=1)
    seal = pd_pb2.SealRangeRequest(stream_id=1, range_index=0, epoch=1, end_offset=10, create_next=True)
    prepare = pd_pb2.PrepareObjectRequest(
        stream_id=1, range_index=0, start_offset=0, end_offset=10, server="rs1", incarnation=101
    )
    group = common_pb2.RowGroup(start_offset=0, count=10, timestamp_ms_min=1, timestamp_ms_max=2)
    commit = pd_pb2.CommitObjectRequest(
        object_id=1, server="rs1", incarnation=101, size_bytes=9, digest=DIGEST, row_groups=[group], epoch=1
    )
    update = pd_pb2.UpdateStreamRequest(name="s", config=common_pb2.StreamConfig(acks=1), fields=["acks"])
    lost, other = replicas("rs2", "rs4")
    mark = pd_state_pb2.MarkLogEnd(server="rs1", incarnation=101, log_end=9)
    return [
        command(name_cluster=pd_state_pb2.NameCluster(cluster_id="x")),
        *register,
        *create,
        command("o1", open_writer=pd_pb2.OpenWriterRequest(name="s")),
        command("r1", create_range=pd_state_pb2.PlacedCreateRange(request=make, replicas=trio)),
        command("z1", seal_range=pd_state_pb2.PlacedSealRange(request=seal, replicas=trio)),
        command(mark_log_end=mark),
        command(mark_log_ends=pd_state_pb2.MarkLogEnds(marks=[mark])),
        command(replace_replica=pd_state_pb2.ReplaceReplica(stream_id=1, range_index=0, lost=lost, replacement=other)),
        command(prepare_object=pd_state_pb2.TimedPrepareObject(request=prepare, deadline_ms=NOW_MS + 9)),
        command(commit_object=commit),
        command("u1", update_stream=update),
        command(drop_hot=pd_state_pb2.DropHot(stream_id=1, range_index=0)),
        command("t1", trim_stream=pd_pb2.TrimStreamRequest(name="s", trim_offset=10)),
        command(abandon_object=pd_state_pb2.AbandonObject(object_id=2)),
        command(collect_objects=pd_state_pb2.CollectObjects(object_ids=[1, 2])),
        command("d1", delete_stream=pd_pb2.DeleteStreamRequest(name="t")),
        *topic_history(2),
    ]


def topic_history(stream_id: int) -> list[bytes]:
    """What a topic lives through, from its creation with this stream to its deletion, and another one that stays."""
    topic = topic_pb2.TopicReference(topic_id=1)
    halves = [topic_pb2.KeyRange(low=bytes(16), high=MIDDLE), topic_pb2.KeyRange(low=MIDDLE)]
    first, *children = (topic_pb2.ShardEnd(shard_id=each, stream_id=stream_id + (0, 3, 4)[each]) for each in range(3))
    retention = topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=7))
    cut = [topic_pb2.ShardPosition(shard_id=each) for each in (1, 2)]
    owner = broker_pb2.Assignment(topic_id=1, broker="s", incarnation=1)
    journal = broker_pb2.Assignment(shard_id=3, broker="t", incarnation=1)
    start = topic_pb2.StartScaleRequest(topic=topic, map_version=1, parents=[0], key_ranges=halves)
    again = topic_pb2.StartScaleRequest(topic=topic, map_version=2, parents=[1], key_ranges=halves[:1])
    own = pd_state_pb2.StartOwnScale(request=again, reason="hot")
    consumed = topic_pb2.ReportConsumedRequest(topic=topic, group="s", cut=cut)
    return [
        command("n1", create_namespace=topic_pb2.CreateNamespaceRequest(name="ns")),
        command("n2", create_namespace=topic_pb2.CreateNamespaceRequest(name="s")),
        command("n3", delete_namespace=topic_pb2.DeleteNamespaceRequest(name="s")),
        command("k1", create_topic=topic_pb2.CreateTopicRequest(namespace="ns", name="t", tags={"s": "t"})),
        command("k2", create_topic=topic_pb2.CreateTopicRequest(namespace="ns", name="u", key_ranges=halves)),
        command("x1", start_scale=start),
        command("x2", cancel_scale=topic_pb2.CancelScaleRequest(topic_id=1, scale_id=1)),
        command("b1", register_broker=broker_pb2.RegisterBrokerRequest(name="s", incarnation=1, address="x:1")),
        command("b2", register_broker=broker_pb2.RegisterBrokerRequest(name="t", incarnation=1, address="x:2")),
        command(assign_shards=pd_state_pb2.AssignShards(assignments=[owner, journal])),
        command(mark_broker_lost=pd_state_pb2.MarkBrokerLost(name="t", incarnation=1)),
        command("x3", start_scale=start),
        command("x4", commit_scale=topic_pb2.CommitScaleRequest(topic_id=1, scale_id=2, ends=[first])),
        command(start_own_scale=own),
        command(cancel_scale=topic_pb2.CancelScaleRequest(topic_id=1, scale_id=3)),
        command("k3", update_topic=topic_pb2.UpdateTopicRequest(topic=topic, config=retention, fields=["retention"])),
        command("k4", truncate_topic=topic_pb2.TruncateTopicRequest(topic=topic, cut=cut)),
        command(take_cuts=pd_state_pb2.TakeCuts(topic_ids=[1, 2])),
        command("g1", report_consumed=consumed),
        command(
            retain_topic=pd_state_pb2.RetainTopic(
                request=topic_pb2.TruncateTopicRequest(topic=topic, cut=cut), covered=cut
            )
        ),
        command("k5", seal_topic=topic_pb2.SealTopicRequest(topic=topic)),
        *(command(end_shard=topic_pb2.EndShardRequest(topic_id=1, end=each)) for each in children),
        command(continue_topic=pd_state_pb2.ContinueTopic(topic_id=1)),
        command("k6", delete_topic=topic_pb2.DeleteTopicRequest(topic=topic)),
    ]


def framed(parts: Sequence[bytes]) -> bytes:
    """Commands as one input."""
    return b"".join(struct.pack(">H", len(part)) + part for part in parts if len(part) < 1 << 16)


def unframed(data: bytes) -> list[bytes]:
    """The commands of an input; what is cut short is one too."""
    parts = []
    position = 0
    while position + 2 <= len(data) and len(parts) < 64:
        (length,) = struct.unpack_from(">H", data, position)
        parts.append(data[position + 2 : position + 2 + length])
        position += 2 + length
    return parts


def change_history(data: bytes, random: Random) -> bytes:
    """Other commands: one changed, moved, repeated or left out, a few made of nothing."""
    parts = unframed(data)
    for _ in range(random.choice((1, 2, 4, 8))):
        at = random.randrange(len(parts) + 1)
        kind = random.randrange(6)
        if kind <= 2 and at < len(parts):
            parts[at] = encoded_changed(parts[at], pd_state_pb2.Command, random, KNOWN)
        elif kind == 3 and parts:
            parts.insert(at, parts[at % len(parts)])
        elif kind == 4 and at < len(parts) and random.random() < 0.5:
            del parts[at]
        else:
            parts.insert(at, made_up(random))
    return framed(parts[:64])


def made_up(random: Random) -> bytes:
    """A command of a random action with random fields."""
    made = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=NOW_MS)
    action = getattr(made, random.choice(_ACTIONS))
    action.SetInParent()
    for _ in range(random.choice((2, 5, 12))):
        message_changed(action, random, known=KNOWN)
    return made.SerializeToString()


def run_commands(data: bytes) -> bool:
    """Never raises, never an internal error, invariants hold after each; a restored member and a second one agree."""
    commands = unframed(data)
    machine, twin = Machine(), Machine()
    accepted = 0
    for index, each in enumerate(commands, 1):
        answer = machine.apply(index, each)
        result = pd_state_pb2.CommandResult.FromString(answer)
        accepted += not result.error_code
        assert not (result.error_code == "INTERNAL" and " failed: " in result.error_message), result.error_message
        machine.state.validate()
        if index == len(commands) // 2:
            twin.restore(machine.snapshot())
        elif index > len(commands) // 2:
            assert twin.apply(index, each) == answer, "a restored member answers differently"
    if len(commands) > 1:
        twin.state.validate()
        assert twin.snapshot() == machine.snapshot(), "a restored member has another state"
        assert twin.state.indexes() == machine.state.indexes(), "an index differs after a restore"
    return accepted > 0


def snapshot_seeds() -> list[bytes]:
    """Snapshots after each half of the history."""
    machine = Machine()
    seeds = [machine.snapshot()]
    for index, each in enumerate(history(), 1):
        machine.apply(index, each)
        if index in (10, 14):
            seeds.append(machine.snapshot())
    return [*seeds, machine.snapshot()]


def run_restore(data: bytes) -> bool:
    """A snapshot is taken whole, or refused and nothing is changed; what was taken is given back, and commands go on."""
    machine = Machine()
    machine.apply(1, history()[0])
    before = machine.snapshot()
    try:
        machine.restore(data)
    except (Corruption, UnsupportedVersion):
        assert machine.snapshot() == before, "half a snapshot was taken"
        raise
    again = Machine()
    again.restore(machine.snapshot())
    assert again.snapshot() == machine.snapshot()
    for index, each in enumerate(history(), 2):
        machine.apply(index, each)
    return True


def change_snapshot(data: bytes, random: Random) -> bytes:
    """Another snapshot."""
    return encoded_changed(data, pd_state_pb2.StateSnapshot, random, KNOWN)


TARGETS = (
    Target(
        "pd-commands", lambda: [framed(history()), framed(history()[:9]), framed(topic_history(1))], run_commands, None,
        (change_history,),
        plain_share=0.05, ci_inputs=50,
    ),
    Target(
        "pd-state-snapshot", snapshot_seeds, run_restore, None, (change_snapshot,), plain_share=0.15,
        peak_bytes_max=8 * MIB,
    ),
)  # fmt: skip
