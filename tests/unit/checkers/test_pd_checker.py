"""Histories of the placement driver: those that the production state machine makes pass, and no spoiled one does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.errors import RangelogError
from rangelog_pd.handlers.streams import shown
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.operations import OPERATIONS
from rangelog_pd.state.results import Results
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from tests.support.pd_checker import Applied, check_applied, check_pd
from tests.support.pd_history import (
    READS,
    Call,
    FilePdHistory,
    PdHistory,
    RangeView,
    Reply,
    StreamView,
    read_pd_history,
    reply_of,
    view_of_object,
    view_of_range,
    view_of_stream,
)

SERVERS = [common_pb2.Replica(server=name, incarnation=1) for name in ("rs1", "rs2", "rs3")]
NAMES = ("a", "b")
RESPONSES: dict[str, Any] = {
    "create_stream": pb.CreateStreamResponse,
    "open_writer": pb.OpenWriterResponse,
    "trim_stream": pb.TrimStreamResponse,
    "create_range": pb.CreateRangeResponse,
    "seal_range": pb.SealRangeResponse,
    "prepare_object": pb.PrepareObjectResponse,
    "commit_object": pb.CommitObjectResponse,
}
DIGEST = "sha256:" + "0" * 64


class Story:
    """Clients that call at once a placement driver which is the production state machine, with answers that get lost."""

    def __init__(self, seed: int, calls: int = 60) -> None:
        self.dice = random.Random(seed)
        self.machine = Machine()
        self.history = PdHistory()
        self.applied: list[Applied] = []
        self.index = 0
        self.now_s = 0.0
        self.epochs: dict[str, list[int]] = {name: [0] for name in NAMES}
        self.objects: list[tuple[str, int, int]] = []
        """Stream, range's epoch, id."""
        self._apply("", set_cluster_version=pd_state_pb2.SetClusterVersion(version=FEATURE_LEVEL))
        for replica in SERVERS:
            action = pb.RegisterServerRequest(server=replica.server, incarnation=1, boot=1, data_address="h:1")
            self._apply("", register_server=action)
        waiting: list[Call] = []
        for number in range(calls):
            waiting.append(self._ask(number))
            while len(waiting) > 3 or (waiting and self.dice.random() < 0.5):
                self._do(waiting.pop(self.dice.randrange(len(waiting))))
        for call in waiting:
            self._do(call)
        self._repeat_some()

    def _repeat_some(self) -> None:
        """The same requests once more, under their ids."""
        commands = [call for call in self.history.calls if call.request_id]
        for call in self.dice.sample(commands, len(commands) // 8):
            again = self.history.ask("late", call.name, call.stream, self._tick(), call.request_id, **call.arguments)
            self._do(again)

    def _apply(self, request_id: str, **action: object) -> bytes:
        self.index += 1
        command = pd_state_pb2.Command(version=FEATURE_LEVEL, request_id=request_id, now_ms=self.index, **action)  # type: ignore[arg-type]
        encoded = command.SerializeToString()
        result = self.machine.apply(self.index, encoded)
        self.applied.append(Applied(self.index, encoded, result, self.now_s, self.now_s))
        return result

    def _tick(self) -> float:
        self.now_s += self.dice.choice((0.0, 0.1, 0.2))
        return self.now_s

    def _ask(self, number: int) -> Call:
        """A call that makes sense, or hardly, in the state as it is now (and not as it will be when it is done)."""
        stream = self.dice.choice(NAMES)
        state = self.machine.state
        stream_id = state.names.get(stream)
        last = state.ranges.of(stream_id).last() if stream_id else None
        end = state.streams[stream_id].next_offset if stream_id else 0
        epoch = self.epochs[stream][-1 if self.dice.random() < 0.85 else max(-2, -len(self.epochs[stream]))]
        index = last.index if last and self.dice.random() < 0.8 else self.dice.randrange(4)
        start = last.start_offset if last else 0
        some = [each for each in self.objects if each[0] == stream]
        pick: dict[str, dict[str, object]] = {
            "create_stream": {},
            "open_writer": {},
            "describe_stream": {},
            "list_ranges": {},
            "trim_stream": {"trim_offset": self.dice.randrange(end + 2)},
            "create_range": {"epoch": epoch, "start_offset": end if self.dice.random() < 0.8 else start},
            "seal_range": {
                "epoch": epoch,
                "range_index": index,
                "end_offset": max(0, start + self.dice.randrange(-1, 9)),
                "create_next": self.dice.random() < 0.5,
            },
            "prepare_object": self._upload(stream_id, index),
        }
        if some:
            _, of, object_id = self.dice.choice(some)
            pick["commit_object"] = {"object_id": object_id, "epoch": of, "digest": DIGEST}
        weights = {
            "create_range": 4,
            "seal_range": 6,
            "open_writer": 2,
            "commit_object": 4,
            "prepare_object": 3,
            "list_ranges": 3,
        }
        name = self.dice.choices(list(pick), [weights.get(each, 1) for each in pick])[0]
        if number < 2:
            name, stream = "create_stream", NAMES[number]
        request_id = "" if name in READS else f"r{number}"
        return self.history.ask(f"c{number % 4}", name, stream, self._tick(), request_id, **pick[name])

    def _upload(self, stream_id: int | None, index: int) -> dict[str, object]:
        ranges = self.machine.state.ranges.of(stream_id or 0)
        sealed = [each for each in ranges.values() if each.state == common_pb2.RANGE_STATE_SEALED]
        some = self.dice.choice(sealed) if sealed else common_pb2.Range(index=index)
        end = some.tiered_end_offset + self.dice.randrange(1, 4)
        return {"range_index": some.index, "start_offset": some.tiered_end_offset, "end_offset": end}

    def _do(self, call: Call) -> None:
        """Done, answered or not; or lost on its way there."""
        self._tick()
        lost = self.dice.random()
        if lost < 0.06 and call.name not in READS:
            return
        try:
            reply = self._read(call) if call.name in READS else self._command(call)
        except RangelogError as error:
            if lost > 0.12:
                self.history.refused(call, error.code, self._tick())
            return
        if call.name == "open_writer" and reply.stream:
            self.epochs[call.stream].append(reply.stream.epoch)
        if lost < 0.12:
            return
        if call.name == "prepare_object":
            found = self.machine.state.objects[reply.objects[0].object_id]
            self.objects.append((call.stream, found.epoch, found.object_id))
        self.history.ok(call, reply, self._tick())

    def _read(self, call: Call) -> Reply:
        state = self.machine.state
        stream = state.stream(call.stream)
        if call.name == "describe_stream":
            return Reply(view_of_stream(shown(state, stream)))
        ranges = state.ranges.of(stream.stream_id).values()
        return Reply(view_of_stream(stream), tuple(view_of_range(each) for each in ranges))

    def _command(self, call: Call) -> Reply:
        asked = dict(call.arguments)
        stream_id = self.machine.state.names.get(call.stream) or 99
        action: object
        if call.name in ("create_stream", "open_writer", "trim_stream"):
            kinds = {"create_stream": pb.CreateStreamRequest, "open_writer": pb.OpenWriterRequest}
            action = kinds.get(call.name, pb.TrimStreamRequest)(name=call.stream, **asked)
        elif call.name == "create_range":
            request = pb.CreateRangeRequest(stream_id=stream_id, **asked)
            action = pd_state_pb2.PlacedCreateRange(request=request, replicas=SERVERS)
        elif call.name == "seal_range":
            seal = pb.SealRangeRequest(stream_id=stream_id, **asked)
            action = pd_state_pb2.PlacedSealRange(request=seal, replicas=SERVERS)
        elif call.name == "prepare_object":
            prepare = pb.PrepareObjectRequest(stream_id=stream_id, server="rs1", incarnation=1, **asked)
            action = pd_state_pb2.TimedPrepareObject(request=prepare, deadline_ms=1 << 40)
        else:
            action = pb.CommitObjectRequest(server="rs1", incarnation=1, size_bytes=9, **asked)
        response = response_of(self._apply(call.request_id, **{call.name: action}))
        return reply_of(RESPONSES[call.name].FromString(response))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=150, deadline=None)
def test_the_production_state_machine_passes(seed: int) -> None:
    """Whatever is called at once and whichever answers are lost, two independent writings of the rules agree."""
    report = check_pd(Story(seed).history.calls)
    assert report.clean, report.violations
    assert report.streams == 2


def answered(story: Story, *names: str) -> list[Call]:
    """Calls with an answer."""
    return [call for call in story.history.calls if call.outcome == "ok" and (not names or call.name in names)]


def one(story: Story, calls: list[Call]) -> Iterator[Call]:
    """One of them, if there is any."""
    yield from calls and [story.dice.choice(calls)]


def hand_out_an_epoch_again(story: Story) -> bool:
    """Two writers are told the same epoch."""
    opens = answered(story, "open_writer")
    for call in opens[1:]:
        others = [each for each in opens if each.stream == call.stream and each.request_id != call.request_id]
        before = [each for each in others if each.returned_s < call.invoked_s]
        if before and call.reply and call.reply.stream and before[-1].reply and before[-1].reply.stream:
            epoch = before[-1].reply.stream.epoch
            call.reply = call.reply._replace(stream=call.reply.stream._replace(epoch=epoch))
            return True
    return False


def move_an_end(story: Story) -> bool:
    """Somebody is told another end of a sealed range."""
    sealed = [call for call in answered(story) if call.reply and any(each.end for each in call.reply.ranges)]
    for call in one(story, sealed):
        assert call.reply
        ranges = tuple(each._replace(end=each.end + 1) if each.end else each for each in call.reply.ranges)
        call.reply = call.reply._replace(ranges=ranges)
    return bool(sealed)


def show_an_old_state(story: Story) -> bool:
    """A reader is served what was true before something that was answered before it asked."""
    for call in answered(story, "describe_stream"):
        for before in answered(story, "open_writer"):
            assert call.reply
            assert call.reply.stream
            if before.stream == call.stream and before.returned_s < call.invoked_s:
                stale = call.reply.stream._replace(epoch=before.reply.stream.epoch - 1)  # type: ignore[union-attr]
                call.reply = Reply(stale)
                return True
    return False


def forget_what_was_done(story: Story) -> bool:
    """A seal that was answered had no effect for anybody later."""
    for call in answered(story, "seal_range"):
        assert call.reply
        index = call.reply.ranges[0].index
        for later in answered(story, "list_ranges"):
            shown = later.reply.ranges if later.reply else ()
            if later.stream == call.stream and later.invoked_s > call.returned_s:
                ranges = tuple(each._replace(end=None) if each.index == index else each for each in shown)
                if later.reply and ranges != shown:
                    later.reply = later.reply._replace(ranges=ranges)
                    return True
    return False


def do_a_call_before_it_was_made(story: Story) -> bool:
    """An answer comes from the future: the call it depends on was made after this one had returned."""
    opens = answered(story, "open_writer")
    for call in answered(story, "seal_range", "create_range"):
        for needed in opens:
            epoch = needed.reply.stream.epoch if needed.reply and needed.reply.stream else -1
            made = call.reply and any(
                each.epoch == epoch for each in (*call.reply.ranges, *filter(None, [call.reply.next_range]))
            )
            if needed.stream == call.stream and made:
                tries = [each for each in story.history.calls if each.request_id == needed.request_id]
                call.invoked_s = call.returned_s = min(each.invoked_s for each in tries) - 0.01
                return True
    return False


def refuse_what_was_right(story: Story) -> bool:
    """A seal that nothing was wrong with is refused as if there were."""
    seals = [call for call in answered(story, "seal_range") if call.reply and call.reply.next_range]
    for call in one(story, seals):
        call.outcome, call.code, call.reply = "refused", "PRECONDITION_FAILED", None
    return bool(seals)


def answer_a_repeat_otherwise(story: Story) -> bool:
    """A request id gets two answers."""
    for call in one(story, answered(story, "create_range", "seal_range", "open_writer")):
        story.history.calls.append(replace(call, outcome="refused", code="FENCED", reply=None))
        return True
    return False


def take_a_stream_twice(story: Story) -> bool:
    """Two clients are told that they made the stream."""
    for call in one(story, answered(story, "create_stream")):
        story.history.calls.append(replace(call, request_id="other", client="c9"))
        return True
    return False


SPOILERS = [
    hand_out_an_epoch_again,
    move_an_end,
    show_an_old_state,
    forget_what_was_done,
    do_a_call_before_it_was_made,
    refuse_what_was_right,
    answer_a_repeat_otherwise,
    take_a_stream_twice,
]


@given(seed=st.integers(0, 1 << 32), spoiler=st.sampled_from(SPOILERS))
@settings(max_examples=200, deadline=None)
def test_no_spoiled_history_passes(seed: int, spoiler: Callable[[Story], bool]) -> None:
    """Each way of spoiling is found in every story in which it changes something."""
    story = Story(seed)
    if spoiler(story):
        report = check_pd(story.history.calls)
        assert report.counts, spoiler.__name__
        assert report.violations


def test_every_way_of_spoiling_applies_often() -> None:
    """None of the ways is vacuous."""
    for spoiler in SPOILERS:
        assert sum(spoiler(Story(seed)) for seed in range(30)) >= 8, spoiler.__name__


def stream_view(epoch: int, next_offset: int = 0, ranges: int = 0) -> Reply:
    """Of stream 1, untrimmed."""
    return Reply(StreamView(1, epoch, 0, next_offset, ranges))


def opened(*windows: tuple[float, float, int | None]) -> list[Call]:
    """A stream, and opens of it: asked, answered, the epoch that was told (None: nothing was)."""
    calls = [Call("c", "r", "create_stream", "s", {}, 0.0, 0.5, "ok", "", stream_view(0))]
    for number, (invoked_s, returned_s, epoch) in enumerate(windows):
        call = Call("c", f"r{number}", "open_writer", "s", {}, invoked_s)
        if epoch is not None:
            call.returned_s, call.outcome, call.reply = returned_s, "ok", stream_view(epoch)
        calls.append(call)
    return calls


@pytest.mark.parametrize(
    ("windows", "clean"),
    [
        ([(1, 2, 1), (3, 4, 2)], True),
        ([(1, 9, 2), (3, 4, 1)], True),  # at once: either order
        ([(1, 2, 2), (3, 4, 1)], False),  # one after the other
        ([(1, 2, 1), (3, 4, 3)], False),  # an epoch that nobody was given
        ([(1, 2, 1), (1, 2, None), (3, 4, 3)], True),  # the UNKNOWN one was done
        ([(1, 2, 1), (5, 6, None), (3, 4, 3)], False),  # it came too late for that
        ([(1, 2, None)] * 12 + [(3, 4, 7)], True),  # six of twelve were done
        ([(1, 2, None)] * 5 + [(3, 4, 7)], False),
    ],
)
def test_opens(windows: list[tuple[float, float, int | None]], *, clean: bool) -> None:
    """Epochs count opens: those that were answered, and as many UNKNOWN ones as it takes."""
    report = check_pd(opened(*windows))
    assert report.clean == clean, report.violations
    assert report.places < 200


def test_a_search_that_grows_too_large_is_not_a_pass() -> None:
    """A stream that cannot be decided in the bound is said to be undecided."""
    report = check_pd(opened(*[(1, 2, None)] * 12, (3, 4, 7)), places_max=3)
    assert not report.clean
    assert report.undecided == 1


def test_the_evidence_names_the_state_and_the_calls() -> None:
    """A violation says how far an order could be found, and which answers fit nowhere."""
    calls = opened((1, 2, 1))
    sealed = RangeView(0, 1, 0, 5, 0)
    asked = {"epoch": 1, "range_index": 0, "end_offset": 5, "create_next": False}
    calls.append(Call("c", "x", "seal_range", "s", asked, 3.0, 4.0, "ok", "", Reply(ranges=(sealed,))))
    report = check_pd(calls)
    assert list(report.counts) == ["not_linearizable"]
    assert "after 2 of 3 calls" in report.violations[0]
    assert "seal_range(s, epoch=1, range_index=0" in report.violations[0]


def test_borders_of_ranges_agree() -> None:
    """An end that is not where the next range starts is found whoever said either."""
    calls = opened((1, 2, 1))
    first, second = RangeView(0, 1, 0, 5, 0), RangeView(1, 1, 6, None, 6)
    calls.append(Call("c", "", "list_ranges", "s", {}, 3.0, 4.0, "ok", "", Reply(None, (first, second))))
    assert "two_ends" in check_pd(calls).counts or "ranges_do_not_tile" in check_pd(calls).counts


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=50, deadline=None)
def test_applied_commands_replay(seed: int) -> None:
    """Where the index is known, a fresh machine gives the same results, and another order does not."""
    applied = Story(seed).applied
    assert check_applied(applied, Machine) == []
    wrong = [each._replace(result=b"?") if number == 5 else each for number, each in enumerate(applied)]
    assert len(check_applied(wrong, Machine)) == 1
    assert check_applied([applied[0]._replace(invoked_s=math.inf), *applied[1:]], Machine)


def test_calls_survive_their_file(tmp_path: Path) -> None:
    """What was noted is read back, up to a torn last line; a call without an answer is UNKNOWN."""
    story = Story(7)
    history = FilePdHistory(tmp_path / "client")
    for call in story.history.calls:
        noted = history.ask(call.client, call.name, call.stream, call.invoked_s, call.request_id, **call.arguments)
        if call.outcome == "ok":
            assert call.reply
            history.ok(noted, call.reply, call.returned_s)
        elif call.outcome == "refused":
            history.refused(noted, call.code, call.returned_s)
    with (tmp_path / "client").open("ab") as file:
        file.write(b'["ok",0,[')
    assert read_pd_history(tmp_path / "client") == story.history.calls


def test_objects_are_kept_apart() -> None:
    """What is kept of an object says which, and what it covers."""
    found = common_pb2.Object(object_id=3, range_index=2, start_offset=5, end_offset=9)
    assert view_of_object(found) == (3, 2, 5, 9)


def _any_epoch(self: State, stream: common_pb2.Stream, epoch: int) -> None:
    """Whoever asks is the writer."""


def _same_epoch(state: State, request: pb.OpenWriterRequest, now_ms: int) -> pb.OpenWriterResponse:
    stream = state.stream(request.name)
    stream = copy_of(state.stream(request.name))
    stream.epoch = max(1, stream.epoch)
    state.put_stream(stream)
    return pb.OpenWriterResponse(stream=stream, last_range=state.ranges.of(stream.stream_id).last())


def _nothing_kept(self: Results, request: str, now_ms: int, result: bytes) -> None:
    """A repeat is done once more."""


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("rangelog_pd.state.store.State.check_epoch", _any_epoch),
        ("rangelog_pd.state.streams.open_writer", _same_epoch),
        ("rangelog_pd.state.results.Results.keep", _nothing_kept),
    ],
)
def test_wrong_rules_in_the_state_machine_are_found(
    monkeypatch: pytest.MonkeyPatch, target: str, wrong: Callable[..., Any]
) -> None:
    """A placement driver with a rule left out does not pass for long."""
    monkeypatch.setattr(target, wrong)
    if target.endswith("open_writer"):
        monkeypatch.setitem(OPERATIONS, "open_writer", OPERATIONS["open_writer"]._replace(apply=wrong))
    assert any(check_pd(Story(seed).history.calls).counts for seed in range(20))
