"""The whole state machine against a model made of lists and dicts, under any order of commands, repeats and restarts.

Beside the model: `validate()` after every command, a refusal changes nothing but the kept results, and a second member
that applies the same log (once from a snapshot) has the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL, LEVEL_EMPTY_RANGES
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.support.pd_rows import level_1_snapshot

NAMES = st.sampled_from(["a", "b"])
SERVERS = ["rs1", "rs2", "rs3", "rs4"]
GOOD = st.sampled_from([["rs1", "rs2", "rs3"], ["rs2", "rs3", "rs4"], ["rs1", "rs4"]])
CHOICES = st.one_of(GOOD, GOOD, GOOD, st.lists(st.sampled_from(SERVERS), max_size=4))
OFFSETS = st.integers(0, 40)


@dataclass
class ModelRange:
    """One range: where, whose, until when."""

    epoch: int
    start: int
    end: int | None = None
    replaced: bool = False
    """It was empty, and the next one took its place."""


@dataclass
class ModelStream:
    """A stream with all ranges it ever had."""

    stream_id: int
    epoch: int = 0
    trim: int = 0
    ranges: list[ModelRange] = field(default_factory=list)

    def append(self, epoch: int, *, drops_empty: bool) -> None:
        """The next range begins where the last one ended."""
        start = self.next_offset
        for each in reversed(self.ranges if drops_empty else ()):
            if each.end != each.start:
                break
            each.replaced = True
        self.ranges.append(ModelRange(epoch, start))

    @property
    def next_offset(self) -> int:
        ends = [each.end for each in self.ranges if each.end is not None]
        return ends[-1] if ends else 0


class PlacementDriver(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.machine, self.twin = Machine(), Machine()
        self.log: list[bytes] = []
        self.now_ms = 1_000
        self.streams: dict[str, ModelStream] = {}
        self.used_ids = 0
        self.drops_empty = False
        self.ends: dict[tuple[int, int], int] = {}
        self.objects: dict[int, str] = {}
        self.answered: list[tuple[bytes, bytes]] = []
        for name in SERVERS:
            request = pd_pb2.RegisterServerRequest(server=name, incarnation=1, boot=1, data_address="x:1")
            assert not self.apply(register_server=request).error_code

    # ---- applying

    def apply(self, **action: Message) -> pd_state_pb2.CommandResult:
        """Apply on both members, under a request id of its own."""
        self.now_ms += 1
        command = pd_state_pb2.Command(
            version=FEATURE_LEVEL,
            request_id=f"r{len(self.log)}",
            now_ms=self.now_ms,
            **action,  # type: ignore[arg-type]
        ).SerializeToString()
        self.log.append(command)
        before = self.tables()
        encoded = self.machine.apply(len(self.log), command)
        assert self.twin.apply(len(self.log), command) == encoded
        result = pd_state_pb2.CommandResult.FromString(encoded)
        assert result.error_code != "INTERNAL", result.error_message
        if result.error_code:
            assert self.tables() == before, "a refusal changes nothing"
        if result.error_code in ("", "FENCED", "PRECONDITION_FAILED", "STREAM_NOT_FOUND", "STREAM_EXISTS"):
            self.answered.append((command, encoded))
        self.machine.state.validate()
        self.machine.state.validate_indexes()
        return result

    def tables(self) -> bytes:
        """The state without the kept results and the time."""
        snapshot = level_1_snapshot(self.machine)
        snapshot.ClearField("time_ms")
        return snapshot.SerializeToString(deterministic=True)

    def placed(self, names: list[str]) -> list[common_pb2.Replica]:
        return [common_pb2.Replica(server=name, incarnation=1) for name in names]

    @staticmethod
    def can_place(names: list[str]) -> bool:
        return len(set(names)) == len(names) and 2 <= len(names) <= 3

    # ---- streams and writers

    @initialize(end=st.integers(0, 9), level=st.sampled_from([FEATURE_LEVEL, LEVEL_EMPTY_RANGES - 1]))
    def begin(self, end: int, level: int) -> None:
        """A stream whose writer sealed a range and opened the next: where most of it happens."""
        self.apply(set_cluster_version=pd_state_pb2.SetClusterVersion(version=level))
        self.drops_empty = level >= LEVEL_EMPTY_RANGES
        self.create_stream("a")
        self.open_writer("a")
        stream = self.streams["a"]
        self.do_create_range(stream, ["rs1", "rs2", "rs3"], 1, 0)
        self.do_seal_range(stream, 0, 1, end, ["rs2", "rs3", "rs4"], create=True)

    @rule(name=NAMES)
    def create_stream(self, name: str) -> None:
        result = self.apply(create_stream=pd_pb2.CreateStreamRequest(name=name))
        if name in self.streams:
            assert result.error_code == "STREAM_EXISTS"
            return
        made = pd_pb2.CreateStreamResponse.FromString(result.response).stream
        assert made.stream_id > self.used_ids, "ids are never reused"
        self.used_ids = made.stream_id
        self.streams[name] = ModelStream(made.stream_id)

    @rule(name=NAMES, sure=st.integers(0, 9))
    def delete_stream(self, name: str, sure: int) -> None:
        if sure:
            return
        result = self.apply(delete_stream=pd_pb2.DeleteStreamRequest(name=name))
        assert result.error_code == ("" if self.streams.pop(name, None) else "STREAM_NOT_FOUND")

    @rule(name=NAMES)
    def open_writer(self, name: str) -> None:
        result = self.apply(open_writer=pd_pb2.OpenWriterRequest(name=name))
        stream = self.streams.get(name)
        if stream is None:
            assert result.error_code == "STREAM_NOT_FOUND"
            return
        stream.epoch += 1
        opened = pd_pb2.OpenWriterResponse.FromString(result.response)
        assert opened.stream.epoch == stream.epoch
        assert opened.HasField("last_range") == bool(stream.ranges)
        if stream.ranges:
            assert opened.last_range.start_offset == stream.ranges[-1].start

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), offset=OFFSETS, names=CHOICES, stale=st.integers(0, 5), elsewhere=st.integers(0, 4))
    def create_range(self, data: Any, offset: int, names: list[str], stale: int, elsewhere: int) -> None:
        stream = self.streams[data.draw(st.sampled_from(sorted(self.streams)))]
        epoch = stream.epoch - (stale == 5)
        if epoch >= 0:  # 0: never opened, or an unset field
            self.do_create_range(stream, names, epoch, offset if elsewhere == 4 else stream.next_offset)

    def do_create_range(self, stream: ModelStream, names: list[str], epoch: int, start: int) -> None:
        request = pd_pb2.CreateRangeRequest(stream_id=stream.stream_id, epoch=epoch, start_offset=start)
        result = self.apply(create_range=pd_state_pb2.PlacedCreateRange(request=request, replicas=self.placed(names)))
        is_open = bool(stream.ranges) and stream.ranges[-1].end is None
        if not epoch:
            assert result.error_code == "INVALID_ARGUMENT"
        elif epoch != stream.epoch:
            assert result.error_code == "FENCED"
        elif not result.error_code:
            made = pd_pb2.CreateRangeResponse.FromString(result.response).range
            assert (made.epoch, made.start_offset) == (epoch, start)
            if made.index == len(stream.ranges):
                assert not is_open
                assert start == stream.next_offset
                assert self.can_place(names)
                stream.append(epoch, drops_empty=self.drops_empty)
            else:
                known = stream.ranges[made.index]
                assert (known.epoch, known.start) == (epoch, start), "what an earlier try made"
        elif not is_open and start == stream.next_offset:
            assert result.error_code == "NO_PLACEMENT"
            assert not self.can_place(names)

    @precondition(lambda self: any(stream.ranges for stream in self.streams.values()))
    @rule(data=st.data(), length=OFFSETS, names=CHOICES, stale=st.integers(0, 5), create=st.booleans())
    def seal_range(self, data: Any, length: int, names: list[str], stale: int, create: bool) -> None:
        stream = self.streams[data.draw(st.sampled_from(sorted(n for n, s in self.streams.items() if s.ranges)))]
        index = len(stream.ranges) - 1 - data.draw(st.integers(0, min(1, len(stream.ranges) - 1)))
        end = stream.ranges[index].start + length // 4
        self.do_seal_range(stream, index, stream.epoch - (stale == 5), end, names, create=create)

    def do_seal_range(
        self, stream: ModelStream, index: int, epoch: int, end: int, names: list[str], *, create: bool
    ) -> None:
        known = stream.ranges[index]
        request = pd_pb2.SealRangeRequest(
            stream_id=stream.stream_id,
            range_index=index,
            epoch=epoch,
            end_offset=end,
            create_next=create,
        )
        result = self.apply(seal_range=pd_state_pb2.PlacedSealRange(request=request, replicas=self.placed(names)))
        if not epoch:
            assert result.error_code == "INVALID_ARGUMENT"
            return
        if epoch != stream.epoch:
            assert result.error_code == "FENCED"
            assert result.error_epoch == stream.epoch
            return
        if result.error_code:
            trimmed = index < len(stream.ranges) - 1 and known.end is not None and known.end <= stream.trim
            if result.error_code == "RANGE_NOT_FOUND":
                assert trimmed or known.replaced
            else:
                assert not trimmed
                assert result.error_code == "NO_PLACEMENT"
                assert create
                assert not self.can_place(names)
            return
        answer = pd_pb2.SealRangeResponse.FromString(result.response)
        if known.end is None:
            known.end = request.end_offset
        assert answer.range.end_offset == known.end, "the end in force, for ever"
        if answer.HasField("next_range"):
            assert answer.next_range.epoch == epoch
            if index + 1 == len(stream.ranges):
                assert create
                stream.append(epoch, drops_empty=self.drops_empty)
            following = next(each for each in stream.ranges[index + 1 :] if not each.replaced)
            assert following.start == answer.next_range.start_offset == known.end

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), offset=OFFSETS)
    def trim(self, data: Any, offset: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.streams)))
        stream = self.streams[name]
        result = self.apply(trim_stream=pd_pb2.TrimStreamRequest(name=name, trim_offset=offset))
        if offset > stream.next_offset:
            assert result.error_code == "OFFSET_OUT_OF_RANGE"
            assert result.error_offset == stream.next_offset
        else:
            stream.trim = max(stream.trim, offset)

    # ---- objects

    @precondition(lambda self: any(stream.ranges for stream in self.streams.values()))
    @rule(data=st.data(), length=st.integers(0, 20), choice=st.integers(0, 9), ttl=st.integers(0, 30))
    def prepare(self, data: Any, length: int, choice: int, ttl: int) -> None:
        stream = self.streams[data.draw(st.sampled_from(sorted(n for n, s in self.streams.items() if s.ranges)))]
        index = data.draw(st.integers(0, len(stream.ranges) - 1))
        found = self.machine.state.ranges.of(stream.stream_id).get(index)
        start = found.tiered_end_offset if found is not None else 0
        if choice == 8:  # not where the last object ended
            start += 1
        end = start + length
        if found is not None and length > 9:  # all that is left
            end = max(found.end_offset, start)
        members = [each.server for each in found.replicas] if found is not None else []
        server = members[choice % len(members)] if members and choice < 9 else "rs1"
        request = pd_pb2.PrepareObjectRequest(
            stream_id=stream.stream_id,
            range_index=index,
            start_offset=start,
            end_offset=end,
            server=server,
            incarnation=1,
        )
        timed = pd_state_pb2.TimedPrepareObject(request=request, deadline_ms=self.now_ms + ttl)
        result = self.apply(prepare_object=timed)
        if not result.error_code:
            assert choice != 8, "an object starts where the one before ends"
            made = pd_pb2.PrepareObjectResponse.FromString(result.response).object
            assert self.objects.setdefault(made.object_id, made.key) == made.key
            assert len(set(self.objects.values())) == len(self.objects), "keys are never reused"

    @precondition(lambda self: self.objects)
    @rule(data=st.data(), size=st.integers(0, 3), wrong=st.integers(0, 7))
    def commit(self, data: Any, size: int, wrong: int) -> None:
        object_id = data.draw(st.sampled_from(sorted(self.objects)[-3:]))
        found = self.machine.state.objects.get(object_id)
        request = pd_pb2.CommitObjectRequest(
            object_id=object_id,
            server=found.server if found is not None and wrong else "rs9",
            incarnation=1,
            size_bytes=size,
            digest="sha256:" + "1" * 64,
            epoch=found.epoch if found is not None else 0,
        )
        state = found.state if found is not None else None
        result = self.apply(commit_object=request)
        if not result.error_code:
            assert state in (common_pb2.OBJECT_STATE_PREPARED, common_pb2.OBJECT_STATE_COMMITTED)

    @precondition(lambda self: self.objects)
    @rule(data=st.data(), collect=st.booleans())
    def discard(self, data: Any, collect: bool) -> None:
        object_id = data.draw(st.sampled_from(sorted(self.objects)[-3:]))
        found = self.machine.state.objects.get(object_id)
        was = found.state if found is not None else None
        if collect:
            self.apply(collect_objects=pd_state_pb2.CollectObjects(object_ids=[object_id]))
            gone = object_id not in self.machine.state.objects
            assert gone == (was is None or was == common_pb2.OBJECT_STATE_DELETED), "only tombstones are forgotten"
        else:
            self.apply(abandon_object=pd_state_pb2.AbandonObject(object_id=object_id))
            if was == common_pb2.OBJECT_STATE_COMMITTED:
                assert self.machine.state.objects[object_id].state == was, "what is committed is not given up"

    @precondition(lambda self: any(stream.ranges for stream in self.streams.values()))
    @rule(data=st.data(), lost=st.sampled_from([*SERVERS, ""]), new=st.sampled_from(SERVERS), drop=st.booleans())
    def move(self, data: Any, lost: str, new: str, drop: bool) -> None:
        stream = self.streams[data.draw(st.sampled_from(sorted(n for n, s in self.streams.items() if s.ranges)))]
        index = data.draw(st.integers(0, len(stream.ranges) - 1))
        if drop:
            result = self.apply(drop_hot=pd_state_pb2.DropHot(stream_id=stream.stream_id, range_index=index))
            if not result.error_code:
                assert stream.ranges[index].end is not None, "an open range is never dropped"
                of = self.machine.state.ranges.of(stream.stream_id)[index]
                assert of.tiered_end_offset == of.end_offset == stream.ranges[index].end
            return
        command = pd_state_pb2.ReplaceReplica(
            stream_id=stream.stream_id,
            range_index=index,
            lost=self.placed([lost])[0] if lost else None,
            replacement=self.placed([new])[0],
        )
        if not self.apply(replace_replica=command).error_code:
            assert stream.ranges[index].end is not None, "an open range is never mended"

    # ---- restarts and repeats

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        """A request that comes again gets its first answer, and nothing happens."""
        command, first = data.draw(st.sampled_from(self.answered))
        before = self.machine.snapshot()
        assert self.machine.apply(len(self.log), command) == first
        assert self.machine.snapshot() == before

    @rule()
    def restart(self) -> None:
        """Both members go through a snapshot; one that replays the log comes to the same bytes."""
        data = self.machine.snapshot()
        assert self.twin.snapshot() == data
        self.machine.restore(data)
        replayed = Machine()
        for index, command in enumerate(self.log):
            replayed.apply(index, command)
        assert replayed.snapshot() == data

    @invariant()
    def ranges_are_the_models(self) -> None:
        """What is left of each stream is the model's, and no end ever changed."""
        state = self.machine.state
        assert state.names.ids() == {name: stream.stream_id for name, stream in self.streams.items()}
        for stream in self.streams.values():
            kept = state.ranges.of(stream.stream_id)
            for index, known in enumerate(stream.ranges):
                if index not in kept:
                    assert known.end is not None
                    assert known.replaced or known.end <= stream.trim, "only what was trimmed or empty is forgotten"
                    assert index < len(stream.ranges) - 1, "the last range stays"
                    continue
                assert not known.replaced, "the next range took its place"
                found = kept[index]
                is_open = found.state == common_pb2.RANGE_STATE_OPEN
                assert (found.epoch, found.start_offset) == (known.epoch, known.start)
                assert is_open == (known.end is None)
                if known.end is not None:
                    assert self.ends.setdefault((stream.stream_id, index), found.end_offset) == known.end
            assert state.streams[stream.stream_id].next_offset == stream.next_offset
            assert state.streams[stream.stream_id].trim_offset == stream.trim


PlacementDriver.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestPlacementDriver = PlacementDriver.TestCase
