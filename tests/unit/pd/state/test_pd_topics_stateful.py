"""Topics against a model made of lists, under any order of commands, writers, repeats and restarts.

Beside the model: `validate()` after every command, a refusal changes nothing, and a second member that applies the same log
(once from a snapshot) has the same bytes. An entry changes two streams at most, so that topics stay between two states.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_pd.state import topic_work
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.shards import encode_key_range
from rangelog_pd.state.topic_states import state_name
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import true_end
from tests.support.topic_model import STREAMS_PER_ENTRY, ModelShard, ModelTopic

NAMES = st.sampled_from(["a", "b"])
CUTS = st.sets(st.integers(1, 15), max_size=3)
WRONG = st.integers(0, 9)
RIGHT, EPOCH, END, LAST = 0, 4, 5, 6
"""What is wrong with a request, of ten equally likely numbers: another epoch, end or last range; most often nothing."""
UNIT = KEY_SPACE_END // 16


class Topics(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.machine, self.twin = Machine(), Machine()
        self.log: list[bytes] = []
        self.topics: dict[str, ModelTopic] = {}
        self.used_ids = 0
        self.answered: list[tuple[bytes, bytes]] = []
        self.patch = mock.patch.object(topic_work, "STREAMS_PER_ENTRY", STREAMS_PER_ENTRY)
        self.patch.start()
        for name in ("rs1", "rs2"):
            self.apply(register_server=pd_pb2.RegisterServerRequest(server=name, incarnation=1, boot=1))
        self.apply(set_cluster_version=pd_state_pb2.SetClusterVersion(version=FEATURE_LEVEL))
        self.apply(create_namespace=topic_pb2.CreateNamespaceRequest(name="ns"))

    def teardown(self) -> None:
        self.patch.stop()

    # ---- applying

    def apply(self, **action: Message) -> pd_state_pb2.CommandResult:
        """Apply on both members, under a request id of its own."""
        command = pd_state_pb2.Command(
            version=FEATURE_LEVEL,
            request_id=f"r{len(self.log)}",
            now_ms=1_000 + len(self.log),
            **action,  # type: ignore[arg-type]
        ).SerializeToString()
        self.log.append(command)
        before = [each.freeze() for each in self.tables()]
        encoded = self.machine.apply(len(self.log), command)
        assert self.twin.apply(len(self.log), command) == encoded
        result = pd_state_pb2.CommandResult.FromString(encoded)
        assert result.error_code != "INTERNAL", result.error_message
        if result.error_code:
            assert [each.freeze() for each in self.tables()] == before, "a refusal changes nothing"
        if result.error_code != "NO_PLACEMENT":
            self.answered.append((command, encoded))
        self.machine.state.validate()
        self.machine.state.validate_indexes()
        return result

    def tables(self) -> list[Any]:
        state = self.machine.state
        topics = state.topics
        return [state.streams, state.ranges, topics.topics, topics.shards, topics.work, topics.namespaces]

    def expect(self, result: pd_state_pb2.CommandResult, *codes: str) -> bool:
        """Check the outcome; return whether it is a success."""
        assert result.error_code in codes, (result.error_code, result.error_message, codes)
        return not result.error_code

    def draw(self, data: Any, wanted: str = "") -> tuple[str, ModelTopic]:
        """A topic, one in the wanted state most often."""
        fitting = sorted(name for name, topic in self.topics.items() if topic.state == wanted)
        name = data.draw(st.sampled_from([*fitting * 4, *sorted(self.topics)]))
        return name, self.topics[name]

    def refer(self, name: str) -> topic_pb2.TopicReference:
        return topic_pb2.TopicReference(namespace="ns", name=name)

    def forbids_kind(self, topic: ModelTopic, result: pd_state_pb2.CommandResult) -> bool:
        """Check that an operation on records is refused for a table, whatever its state."""
        if topic.is_table:
            self.expect(result, "TOPIC_KIND_FORBIDS")
        return topic.is_table

    def forbids(self, topic: ModelTopic, result: pd_state_pb2.CommandResult, *legal: str) -> bool:
        """Check that an operation is refused for the state, if it is not legal there."""
        if topic.state in legal:
            return False
        assert result.error_code == "TOPIC_STATE_FORBIDS"
        assert f"it is {topic.state}" in result.error_message
        return True

    # ---- topics

    @initialize(data=st.data(), count=st.integers(1, 4), cuts=CUTS)
    def begin(self, data: Any, count: int, cuts: set[int]) -> None:
        """A topic with records that was scaled once: where most of it happens."""
        self.create("a", 4)
        for _ in range(2 * count):
            self.write(data, count)
        self.scale(data, cuts)

    @rule(name=NAMES, count=st.integers(1, 4), table=st.booleans())
    def create(self, name: str, count: int, table: bool = False) -> None:
        config = topic_pb2.TopicConfig(kind=topic_pb2.TOPIC_KIND_TABLE if table else topic_pb2.TOPIC_KIND_UNSPECIFIED)
        request = topic_pb2.CreateTopicRequest(namespace="ns", name=name, shard_count=count, config=config)
        if not self.expect(self.apply(create_topic=request), "TOPIC_EXISTS" if name in self.topics else ""):
            return
        topic_id = self.machine.state.topics.names.ids()[f"ns/{name}"]
        assert topic_id > self.used_ids
        self.used_ids = topic_id
        shards = [key_range_of(each) for each in self.machine.state.topics.shards.values() if each.topic_id == topic_id]
        keys = [(round(each.low / UNIT), round(each.high / UNIT)) for each in shards]
        if count == 3:  # no sixteenths: the model takes another one
            self.topics[name] = ModelTopic(topic_id, shards=[ModelShard(each) for each in keys], is_table=table)
            self.delete(name, True)
            return
        self.topics[name] = ModelTopic(topic_id, shards=[ModelShard(each) for each in keys], is_table=table)

    @rule(name=NAMES, sure=WRONG, force=st.booleans())
    def delete_now_and_then(self, name: str, sure: int, force: bool) -> None:
        if sure == EPOCH or (name in self.topics and self.topics[name].state == "sealed"):
            self.delete(name, force)

    def delete(self, name: str, force: bool) -> None:
        result = self.apply(delete_topic=topic_pb2.DeleteTopicRequest(topic=self.refer(name), force=force))
        topic = self.topics.get(name)
        if topic is None:
            self.expect(result, "TOPIC_NOT_FOUND")
            return
        legal = ("sealed", "active", "scaling", "truncating", "sealing") if force else ("sealed",)
        if not self.forbids(topic, result, *legal):
            self.expect(result, "")
            topic.state, topic.plan, topic.to_trim = "deleting", None, []
            topic.go_on()
            self.forget_deleted()

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def go_on(self, data: Any) -> None:
        _, topic = self.draw(data, "deleting")
        command = pd_state_pb2.ContinueTopic(topic_id=topic.topic_id, covered=self.everything(topic))
        self.expect(self.apply(continue_topic=command), "")
        topic.go_on()
        self.forget_deleted()

    def everything(self, topic: ModelTopic) -> list[topic_pb2.ShardPosition]:
        """Snapshots cover all shards: what happens without is in test_pd_truncation.py."""
        return [topic_pb2.ShardPosition(shard_id=number, offset=1 << 62) for number in range(len(topic.shards))]

    def forget_deleted(self) -> None:
        for name, topic in list(self.topics.items()):
            if topic.deleted >= len(topic.shards):
                del self.topics[name]

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), sure=WRONG)
    def seal(self, data: Any, sure: int) -> None:
        name, topic = self.draw(data)
        if sure not in (EPOCH, END, LAST):
            return
        result = self.apply(seal_topic=topic_pb2.SealTopicRequest(topic=self.refer(name)))
        if not self.forbids_kind(topic, result) and not self.forbids(topic, result, "active"):
            self.expect(result, "")
            topic.state = "sealing"

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), more=st.integers(0, 3))
    def truncate(self, data: Any, more: int) -> None:
        """At the current shards, one of them perhaps replaced by what precedes it, so that a cut is also inconsistent."""
        name, topic = self.draw(data)
        leaves = [
            number
            for number in range(len(topic.shards))
            if not any(number in each.predecessors for each in topic.shards)
        ]
        cut = dict.fromkeys(leaves, 0)
        if topic.shards and topic.state != "deleting":
            cut = {number: topic.shards[number].next_offset for number in leaves}
            one = data.draw(st.sampled_from(leaves))
            cut[one] = max(0, cut[one] - 1 + (more == 3) * 2)
            if more == 2 and topic.shards[one].predecessors:
                cut.pop(one)
                cut[min(topic.shards[one].predecessors)] = 0
        positions = [topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in cut.items()]
        request = topic_pb2.TruncateTopicRequest(topic=self.refer(name), cut=positions)
        covered = self.everything(topic)
        result = self.apply(retain_topic=pd_state_pb2.RetainTopic(request=request, covered=covered))
        if self.forbids_kind(topic, result) or self.forbids(topic, result, "active", "sealed"):
            return
        covered = sorted(unit for each in cut for unit in range(*topic.shards[each].keys))
        before = set().union(*(topic.before(each) for each in cut))
        beyond = any(offset > topic.shards[each].next_offset for each, offset in cut.items())
        if covered != list(range(16)):
            self.expect(result, "KEY_RANGE_GAP", "KEY_RANGE_OVERLAP")
        elif beyond:
            self.expect(result, "OFFSET_OUT_OF_RANGE")
        elif result.error_code:
            self.expect(result, "INVALID_ARGUMENT")
            assert before & set(cut)
        else:
            known = [each for each in sorted(before) if topic.shards[each].trim < topic.shards[each].next_offset]
            assert not set(known) & set(cut)
            wholly = self.machine.state.topics.work_of(topic.topic_id).to_trim
            order = [(each.shard_id, each.offset) for each in wholly]
            done = [*cut.items(), *((each, topic.shards[each].next_offset) for each in sorted(before))]
            for number, offset in done:
                if (number, offset) not in order:
                    topic.shards[number].trim = max(topic.shards[number].trim, offset)
            topic.to_trim = order
            topic.state = "truncating" if order else topic.state

    # ---- scales

    @precondition(lambda self: self.topics)
    @precondition(lambda self: any(topic.state == "active" and not topic.is_table for topic in self.topics.values()))
    @rule(data=st.data(), cuts=CUTS)
    def scale(self, data: Any, cuts: set[int]) -> None:
        """A scale from start to end, whose parents' open ranges are sealed on the way."""
        name = data.draw(
            st.sampled_from(
                sorted(name for name, topic in self.topics.items() if topic.state == "active" and not topic.is_table)
            )
        )
        topic = self.topics[name]
        self.start_scale_of(data, name, RIGHT, cuts)
        for each in topic.plan[0] if topic.plan else []:
            if topic.shards[each].is_open:
                self.write_one(topic, each, 1)
        self.commit_scale_of(topic, RIGHT)
        assert topic.state == "active"

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), wrong=WRONG, cuts=CUTS)
    def start_scale(self, data: Any, wrong: int, cuts: set[int]) -> None:
        name, _ = self.draw(data, "active")
        self.start_scale_of(data, name, wrong, cuts)

    def start_scale_of(self, data: Any, name: str, wrong: int, cuts: set[int]) -> None:
        topic = self.topics[name]
        any_shard = wrong == EPOCH or not topic.current()
        candidates = list(range(len(topic.shards))) if any_shard else topic.current()
        parents = sorted(data.draw(st.sets(st.sampled_from(candidates), min_size=1, max_size=3)))
        cover = sorted(topic.shards[each].keys for each in parents)
        children = [
            (low, high)
            for start, end in cover
            for low, high in zip([start, *inside(cuts, start, end)], [*inside(cuts, start, end), end], strict=True)
        ]
        if wrong == END:
            children = children[1:] or [(0, 1), (0, 1)]
        version = topic.map_version - (wrong == LAST)
        request = topic_pb2.StartScaleRequest(
            topic=self.refer(name),
            map_version=version,
            parents=parents,
            key_ranges=[encode_key_range(KeyRange(low * UNIT, high * UNIT)) for low, high in children],
        )
        result = self.apply(start_scale=request)
        if self.forbids_kind(topic, result) or self.forbids(topic, result, "active"):
            return
        covered = sorted(unit for each in children for unit in range(*each))
        if version != topic.map_version:
            self.expect(result, "STALE_MAP_VERSION")
        elif any(topic.shards[each].ended for each in parents):
            self.expect(result, "SHARD_ENDED")
        elif covered != sorted(unit for each in cover for unit in range(*each)):
            self.expect(result, "KEY_RANGE_GAP", "KEY_RANGE_OVERLAP")
        else:
            self.expect(result, "")
            topic.state, topic.plan = "scaling", (parents, sorted(children))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), wrong=WRONG)
    def cancel_scale(self, data: Any, wrong: int) -> None:
        stale = wrong in (EPOCH, END, LAST)
        _, topic = self.draw(data, "scaling")
        row = self.machine.state.topics.topics[topic.topic_id]
        request = topic_pb2.CancelScaleRequest(topic_id=topic.topic_id, scale_id=row.scale_id + stale)
        result = self.apply(cancel_scale=request)
        repeats = topic.state == "active" and request.scale_id == row.scale_id > row.committed_scale_id
        if repeats or self.forbids(topic, result, "scaling"):
            return
        if self.expect(result, "PRECONDITION_FAILED" if stale else ""):
            topic.state, topic.plan = "active", None

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), wrong=WRONG)
    def commit_scale(self, data: Any, wrong: int) -> None:
        self.commit_scale_of(self.draw(data, "scaling")[1], wrong)

    def commit_scale_of(self, topic: ModelTopic, wrong: int) -> None:
        row = self.machine.state.topics.topics[topic.topic_id]
        parents = topic.plan[0] if topic.plan else []
        ends = [self.end_of(topic, each, wrong if number == 0 else RIGHT) for number, each in enumerate(parents)]
        request = topic_pb2.CommitScaleRequest(topic_id=topic.topic_id, scale_id=row.scale_id, ends=ends)
        result = self.apply(commit_scale=request)
        if row.scale_id and row.scale_id == row.committed_scale_id:
            self.expect(result, "")  # a repeat
            return
        if self.forbids(topic, result, "scaling"):
            return
        if wrong == EPOCH:
            self.expect(result, "FENCED")
        elif wrong in (END, LAST) or any(topic.shards[each].is_open for each in parents):
            self.expect(result, "PRECONDITION_FAILED")
        else:
            self.expect(result, "")
            self.follow(topic)

    def follow(self, topic: ModelTopic) -> None:
        """The children of the plan take the place of its parents."""
        assert topic.plan is not None
        parents, children = topic.plan
        for each in parents:
            topic.shards[each].ended = True
        for low, high in children:
            before = {
                each for each in parents if topic.shards[each].keys[0] < high and low < topic.shards[each].keys[1]
            }
            topic.shards.append(ModelShard((low, high), before))
        topic.map_version += 1
        topic.state, topic.plan = "active", None

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), wrong=WRONG)
    def end_shard(self, data: Any, wrong: int) -> None:
        _, topic = self.draw(data, "sealing")
        if topic.state == "deleting":
            return
        number = data.draw(st.integers(0, len(topic.shards) - 1))
        end = self.end_of(topic, number, wrong)
        result = self.apply(end_shard=topic_pb2.EndShardRequest(topic_id=topic.topic_id, end=end))
        shard = topic.shards[number]
        followed = any(number in each.predecessors for each in topic.shards)
        if shard.ended and not followed and end.end_offset == shard.next_offset:
            self.expect(result, "")
            return
        if self.forbids(topic, result, "sealing"):
            return
        if shard.ended:
            self.expect(result, "SHARD_ENDED")
        elif wrong == EPOCH:
            self.expect(result, "FENCED")
        elif wrong in (END, LAST) or shard.is_open:
            self.expect(result, "PRECONDITION_FAILED")
        else:
            self.expect(result, "")
            shard.ended = True
            topic.map_version += 1
            topic.state = "sealing" if topic.current() else "sealed"

    def end_of(self, topic: ModelTopic, number: int, wrong: int) -> topic_pb2.ShardEnd:
        """The end of a shard as it is, or with one field changed."""
        row = self.machine.state.topics.shards[topic.topic_id, number]
        fields = true_end(self.machine.state, row)
        if wrong == EPOCH:
            fields["epoch"] += 1
        elif wrong == END:
            fields["end_offset"] += 1
        elif wrong == LAST:
            fields["last_range_index"] = fields.get("last_range_index", 0) + 1
        return topic_pb2.ShardEnd(**fields)

    # ---- writers

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), count=st.integers(0, 3))
    def write(self, data: Any, count: int) -> None:
        """A writer opens a shard's stream and makes a range, or seals the range that is open."""
        _, topic = self.draw(data, "scaling")
        if topic.state == "deleting":
            return
        self.write_one(topic, data.draw(st.integers(0, len(topic.shards) - 1)), count)

    def write_one(self, topic: ModelTopic, number: int, count: int) -> None:
        shard = topic.shards[number]
        stream = self.machine.state.streams[self.machine.state.topics.shards[topic.topic_id, number].stream_id]
        if shard.is_open:
            end = shard.next_offset + count
            seal = pd_pb2.SealRangeRequest(
                stream_id=stream.stream_id, range_index=stream.range_count - 1, epoch=stream.epoch, end_offset=end
            )
            self.expect(self.apply(seal_range=pd_state_pb2.PlacedSealRange(request=seal)), "")
            shard.ends[-1] = end
            return
        opened = self.apply(open_writer=pd_pb2.OpenWriterRequest(name=stream.name))
        if self.expect(opened, "STREAM_SEALED" if shard.ended else ""):
            shard.epoch += 1
        else:
            assert opened.error_offset == shard.next_offset
        create = pd_pb2.CreateRangeRequest(
            stream_id=stream.stream_id, epoch=shard.epoch, start_offset=shard.next_offset
        )
        placed = pd_state_pb2.PlacedCreateRange(
            request=create, replicas=[common_pb2.Replica(server=each, incarnation=1) for each in ("rs1", "rs2")]
        )
        made = self.apply(create_range=placed)
        if not shard.ended:
            self.expect(made, "")
            shard.ends.append(None)
        elif not shard.epoch:
            self.expect(made, "INVALID_ARGUMENT")
        else:
            assert made.error_code in ("", "STREAM_SEALED"), "what an earlier try made, or nothing"

    # ---- restarts and repeats

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        """A request that comes again gets its first answer, and nothing happens."""
        command, first = data.draw(st.sampled_from(self.answered[-20:]))
        before = self.machine.snapshot()
        assert self.machine.apply(len(self.log), command) == first
        assert self.machine.snapshot() == before

    @rule()
    def restart(self) -> None:
        """One member goes through a snapshot; one that replays the log comes to the same bytes."""
        data = self.machine.snapshot()
        assert self.twin.snapshot() == data
        self.machine.restore(data)
        assert self.machine.snapshot() == data
        replayed = Machine()
        for index, command in enumerate(self.log):
            replayed.apply(index, command)
        assert replayed.snapshot() == data

    @invariant()
    def the_topics_are_the_models(self) -> None:
        """States, maps, ends and trims are the model's."""
        state = self.machine.state
        assert state.topics.names.ids() == {f"ns/{name}": topic.topic_id for name, topic in self.topics.items()}
        for topic in self.topics.values():
            row = state.topics.topics[topic.topic_id]
            assert state_name(row.state) == topic.state
            if topic.state == "deleting":
                assert len(state.topics.maps.of(topic.topic_id).ids) == len(topic.shards) - topic.deleted
                continue
            assert row.map_version == topic.map_version
            for number, shard in enumerate(topic.shards):
                found = state.topics.shards[topic.topic_id, number]
                stream = state.streams[found.stream_id]
                assert bool(found.ended_version) == shard.ended == stream.sealed_for_good
                assert set(found.predecessors) == shard.predecessors
                assert (stream.epoch, stream.trim_offset) == (shard.epoch, shard.trim)
                assert stream.next_offset == shard.next_offset
                if shard.ended:
                    assert found.end_offset == shard.next_offset, "an end never moves"


def inside(cuts: set[int], start: int, end: int) -> list[int]:
    """The cuts within a key range."""
    return [each for each in sorted(cuts) if start < each < end]


Topics.TestCase.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)
TestTopics = Topics.TestCase
