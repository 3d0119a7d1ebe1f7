"""pdctl shard and broker, and the cuts of a topic, against the real handlers and state machine over real gRPC."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangelog import Cut
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import KEY_SPACE_END
from rangelog_proto.v1 import pd_pb2, topic_pb2
from tests.unit.pdctl.in_process_pd import END, InProcessPd, PdctlOverGrpc, digits, key_ranges, lose


def test_split_and_merge_wait_for_the_commit(run: PdctlOverGrpc, topics: InProcessPd, owners: Any) -> None:
    """The children are printed with their keys, what they follow and who owns them; the graph is kept."""
    topics.broker("b1")
    run.json("topic", "create", "t")
    done = run.json("shard", "split", "t", "0")
    assert (done["topic"], done["scale_id"], done["state"], done["parents"]) == ("default/t", 1, "committed", [0])
    assert [each["shard_id"] for each in done["children"]] == [1, 2]
    assert key_ranges(done["children"]) == [(digits("0"), digits("8")), (digits("8"), END)]
    assert done["key_ranges"] == [each["key_range"] for each in done["children"]]
    assert [each["owner"]["broker"] for each in done["children"]] == ["b1", "b1"]
    run.json("shard", "split", "t", "1", "--at", "1", "--at", "40")
    table = run("shard", "split", "t", "2", "--parts", "3").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["SHARD", "6", "7", "8"]
    merged = run.json("shard", "merge", "t", "6", "5", "4")
    assert key_ranges(merged["children"]) == [(digits("1"), "0x" + "aaaaaaaa" * 4)]
    shards = {each["shard_id"]: each for each in run.json("shard", "list", "t", "--all")}
    assert sorted(shards) == list(range(10))
    assert (shards[0]["successors"], shards[1]["predecessors"]) == ([1, 2], [0])
    assert (shards[1]["successors"], shards[9]["predecessors"]) == ([3, 4, 5], [4, 5, 6])
    assert (shards[4]["state"], shards[4]["successors"], shards[4]["owner"]) == ("ended", [9], None)
    assert (shards[4]["created_version"], shards[4]["ended_version"], shards[4]["end_offset"]) == (3, 5, 0)
    assert shards[9]["stream"] == shard_stream_name(1, 9)
    assert [each["shard_id"] for each in run.json("shard", "list", "t")] == [3, 9, 7, 8], "by key"


def test_a_scale_that_is_not_waited_for(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """The plan is shown with the topic and among the tasks, and can be dropped; then another one may start."""
    run.json("topic", "create", "t", "--shards", "2")
    started = run.json("shard", "merge", "t", "1", "0", "--no-wait")
    assert (started["state"], started["parents"], started["children"]) == ("started", [0, 1], [])
    shown = run.json("topic", "show", "t")
    assert (shown["state"], shown["scale"]["parents"]) == ("scaling", [0, 1])
    assert shown["scale"]["key_ranges"] == [{"low": digits("0"), "high": END}] and shown["scale"]["started_ms"] > 0
    assert "shards 0, 1 become 0..end" in run("topic", "show", "t").stdout
    (task,) = run.json("task", "list")
    assert (task["kind"], task["state"], task["shards_left"]) == ("scale-topic", "scaling", 2)
    assert "it is scaling" in run.fails(5, "shard", "split", "t", "0")
    assert run.json("topic", "cancel-scale", "t")["state"] == "active"
    said = run.fails(5, "topic", "cancel-scale", "t")
    assert "is not being scaled" in said
    assert run("shard", "split", "t", "0", "--no-wait").stdout == (
        "scale 2 of default/t is started: see `pdctl topic show default/t`\n"
    )


def test_a_wait_that_is_over_names_who_is_waited_for(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Exit code 4: the scale goes on, with how to look and how to drop it."""
    topics.broker("b1")
    run.json("topic", "create", "t", "--shards", "12")
    topics.reconcile()
    said = run.fails(4, "shard", "merge", "t", *map(str, range(12)), "--wait", "50ms")
    assert "scale 1 of topic default/t is not committed after 0.05 s" in said
    assert "shards 0 (owner b1), 1 (owner b1)" in said and "9 (owner b1) and 2 more" in said
    assert "pdctl topic cancel-scale default/t" in said and "pdctl topic show default/t" in said
    assert run.json("topic", "show", "t")["state"] == "scaling"
    run.json("topic", "cancel-scale", "t")
    lose(topics, "b1")
    assert "shard 3 (owner b1 (lost))" in run.fails(4, "shard", "split", "t", "3", "--wait", "0s")


def test_a_wait_shows_its_progress_on_a_terminal(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line whenever the owners change whom it waits for; none with JSON, whose reader is a program."""
    from pdctl.topics import scaling

    monkeypatch.setattr(scaling, "POLL_S_MAX", scaling.POLL_S)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    run.json("topic", "create", "t")

    def step(name: str) -> None:
        described = sum(each == name for each, _ in topics.requests) if name == "DescribeTopic" else 0
        if described == 3:
            topics.broker("b1")
        elif described == 6:
            cancel = topic_pb2.CancelScaleRequest(topic_id=1, scale_id=1)
            topics.do("CancelScale", cancel, topic_pb2.CancelScaleResponse)

    monkeypatch.setattr(topics, "before", step)
    said = run("shard", "split", "t", "0").stderr.splitlines()
    assert said[:2] == [
        "scale 1 of topic default/t: waiting for the end of shard 0 (no owner)",
        "scale 1 of topic default/t: waiting for the end of shard 0 (owner b1)",
    ]
    assert len(said) == 3 and said[2].startswith("pdctl: scale 1 of topic default/t was cancelled")
    assert run("shard", "split", "t", "0", "--wait", "100ms", "-o", "json").stderr.count("\n") == 1


def test_a_plan_that_another_caller_drops(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait ends at once with exit code 5; also when another scale has followed and was committed."""
    run.json("topic", "create", "t", "--shards", "2")

    def when_described(*steps: Callable[[], object]) -> None:
        left = list(steps)

        def step(name: str) -> None:
            if name == "DescribeTopic" and left:
                left.pop(0)()

        monkeypatch.setattr(topics, "before", step)

    def cancel(scale_id: int) -> Callable[[], object]:
        request = topic_pb2.CancelScaleRequest(topic_id=1, scale_id=scale_id)
        return lambda: topics.do("CancelScale", request, topic_pb2.CancelScaleResponse)

    when_described(cancel(1))
    assert "scale 1 of topic default/t was cancelled" in run.fails(5, "shard", "split", "t", "0")

    def other(*parents: int) -> Callable[[], object]:
        def scale() -> None:
            whole = topic_pb2.KeyRange(low=bytes(16))
            start = topic_pb2.StartScaleRequest(
                topic=topic_pb2.TopicReference(topic_id=1), map_version=1, parents=parents, key_ranges=[whole]
            )
            topics.do("StartScale", start, topic_pb2.StartScaleResponse)
            topics.commit_scale(1)

        return scale

    def both() -> None:
        cancel(2)()
        other(0, 1)()

    when_described(both)
    assert "scale 2 of topic default/t was cancelled" in run.fails(5, "shard", "split", "t", "0")


def test_a_scale_that_others_have_followed_is_committed(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's row names the last scale only; the commit is seen by what followed the parents."""
    run.json("topic", "create", "t")
    done: list[int] = []

    def step(name: str) -> None:
        if name == "DescribeTopic" and not done:
            done.append(1)
            topics.commit_scale(1)
            start = topic_pb2.StartScaleRequest(
                topic=topic_pb2.TopicReference(topic_id=1),
                map_version=2,
                parents=[1, 2],
                key_ranges=[topic_pb2.KeyRange(low=bytes(16))],
            )
            topics.do("StartScale", start, topic_pb2.StartScaleResponse)
            topics.commit_scale(1)

    monkeypatch.setattr(topics, "before", step)
    made = run.json("shard", "split", "t", "0")
    assert (made["state"], [each["shard_id"] for each in made["children"]]) == ("committed", [1, 2])
    assert [each["state"] for each in made["children"]] == ["ended", "ended"]


def test_a_lost_connection_during_the_wait_names_the_scale(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale goes on, so the user must know that it was started."""
    from rangelog_core.errors import Unavailable

    run.json("topic", "create", "t")

    def refuse(name: str) -> None:
        if name == "DescribeTopic":
            raise Unavailable("no placement driver leads")

    monkeypatch.setattr(topics, "before", refuse)
    said = run.fails(4, "--timeout", "2", "shard", "split", "t", "0")
    assert "scale 1 of topic default/t is started: it goes on" in said and "cancel-scale" in said


def test_scales_that_cannot_be(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Keys outside the shard, shards that are not neighbours or not current: nothing is started."""
    run.json("topic", "create", "t", "--shards", "4")
    said = run.fails(2, "shard", "split", "t", "1", "--at", "8")
    assert "shard 1 has the keys 4..8, and cannot be split at 8" in said
    assert "cannot be split at c" in run.fails(2, "shard", "split", "t", "1", "--at", "5", "--at", "c")
    assert "shards 0 and 2 are not neighbours: between 4 and 8" in run.fails(2, "shard", "merge", "t", "2", "0")
    assert "no current shard 9" in run.fails(3, "shard", "split", "t", "9")
    assert "no current shard 9" in run.fails(3, "shard", "merge", "t", "0", "9")
    assert run.json("topic", "show", "t")["scale_id"] == 0


def test_a_map_that_changes_between_two_pages(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing begins anew: shards of two map versions do not fit together."""
    from pdctl.topics import calls

    monkeypatch.setattr(calls, "_PAGE_SIZE", 2)
    run.json("topic", "create", "t", "--shards", "4")
    calls: list[str] = []

    def step(name: str) -> None:
        calls.append(name)
        if calls.count("ListShards") == 2 and len(calls) == 2:
            start = topic_pb2.StartScaleRequest(
                topic=topic_pb2.TopicReference(topic_id=1),
                map_version=1,
                parents=[0, 1, 2, 3],
                key_ranges=[topic_pb2.KeyRange(low=bytes(16))],
            )
            topics.do("StartScale", start, topic_pb2.StartScaleResponse)
            topics.commit_scale(1)

    monkeypatch.setattr(topics, "before", step)
    assert [each["shard_id"] for each in run.json("shard", "list", "t")] == [4]
    assert calls.count("ListShards") == 3
    assert [each["shard_id"] for each in run.json("shard", "list", "t", "--all")] == list(range(5)), "over all pages"


# ---- cuts


def test_truncate(run: PdctlOverGrpc, topics: InProcessPd, tmp_path: Path, owners: Any) -> None:
    """By positions, by a printed cut, up to the head, and to the end of what is sealed."""
    made = run.json("topic", "create", "t", "--shards", "2")
    for shard_id, count in ((0, 3), (1, 2)):
        topics.ranges(shard_stream_name(1, shard_id), count)

    def trims() -> list[int]:
        requests = [pd_pb2.DescribeStreamRequest(name=shard_stream_name(1, each)) for each in range(2)]
        answers = [topics.do("DescribeStream", each, pd_pb2.DescribeStreamResponse) for each in requests]
        return [each.stream.trim_offset for each in answers]

    assert run.json("topic", "truncate", "t", "0=15", "1=5", "--yes", "--no-wait")["state"] == "truncating"
    assert trims() == [0, 0], "no snapshot has the producers of what goes"
    (task,) = run.json("task", "list")
    assert (task["kind"], task["detail"]) == ("truncate-topic", "2 shards wait for a snapshot of the producers")
    topics.cover()
    assert run.json("topic", "show", "t")["state"] == "active"
    assert trims() == [15, 5]
    head = run.json("topic", "cut", "t", "--at", "head")
    assert head == {"cut": 1, "topic_id": made["topic_id"], "offsets": {"0": 15, "1": 5}}
    head["offsets"]["0"] = 20
    file = tmp_path / "cut.json"
    file.write_text(json.dumps(head))
    run.json("topic", "truncate", "t", "--cut", str(file), "--yes", "--no-wait")
    topics.cover()
    assert trims() == [20, 5]
    run.json("topic", "truncate", "t", "--to-head", "--yes", "--no-wait")
    assert trims() == [20, 5]
    assert run("topic", "cut", "t", "--at", "head", "-o", "table").stdout.split() == [
        "SHARD", "OFFSET", "0", "20", "1", "5",
    ]  # fmt: skip
    assert run("topic", "cut", "t", "--at", "head").stdout == Cut(made["topic_id"], {0: 20, 1: 5}).to_json() + "\n"
    assert yaml.safe_load(run("topic", "cut", "t", "--at", "head", "-o", "yaml").stdout) == head
    run.json("topic", "truncate", "t", "--to-tail", "--yes", "--no-wait")
    topics.cover()
    assert trims() == [30, 20], "the open ranges stay"


def test_cuts_that_do_not_fit(run: PdctlOverGrpc, topics: InProcessPd, tmp_path: Path) -> None:
    """One line each, with what to do: incomplete ones, beyond what is sealed, and those of another topic."""
    run.json("topic", "create", "t", "--shards", "2")
    topics.ranges(shard_stream_name(1, 0), 1)
    said = run.fails(2, "topic", "truncate", "t", "0=5", "--yes")
    assert "no key range covers" in said and "pdctl topic cut default/t" in said
    said = run.fails(1, "topic", "truncate", "t", "0=11", "1=0", "--yes")
    assert "its sealed ranges end at 10" in said and "--to-tail" in said
    assert "has no shard 7" in run.fails(3, "topic", "truncate", "t", "0=5", "7=0", "--yes")
    file = tmp_path / "cut.json"
    file.write_text(Cut(9, {0: 1, 1: 0}).to_json())
    assert "the topic with id 9" in run.fails(2, "topic", "truncate", "t", "--cut", str(file), "--yes")
    file.write_text('{"cut":2}')
    assert "upgrade" in run.fails(1, "topic", "truncate", "t", "--cut", str(file), "--yes")
    file.write_text("{")
    assert "pdctl topic cut" in run.fails(2, "topic", "truncate", "t", "--cut", str(file), "--yes")
    assert run.json("stream", "show", shard_stream_name(1, 0))["trim_offset"] == 0


def test_the_head_passes_over_what_is_gone(run: PdctlOverGrpc, topics: InProcessPd, owners: Any) -> None:
    """A shard that has ended stays in the cut while it has records, and then goes with all that its successors follow."""
    run.json("topic", "create", "t", "--shards", "2")

    def head() -> dict[str, int]:
        return run.json("topic", "cut", "t", "--at", "head")["offsets"]  # type: ignore[no-any-return]

    topics.ranges(shard_stream_name(1, 0), 1, open_end=False)
    run.json("shard", "split", "t", "0")
    run.json("shard", "merge", "t", "3", "1")
    assert head() == {"0": 0, "1": 0}
    run.json("topic", "truncate", "t", "0=5", "1=0", "--yes", "--no-wait")
    topics.cover()
    assert head() == {"0": 5, "1": 0}
    run.json("topic", "truncate", "t", "2=0", "3=0", "1=0", "--yes", "--no-wait")
    topics.cover()
    assert head() == {"2": 0, "4": 0}, "3 and 1 are empty and ended: what follows both is the head"
    run.json("topic", "truncate", "t", "--to-tail", "--yes", "--no-wait")
    topics.cover()
    assert head() == {"2": 0, "4": 0}


# ---- brokers


def test_brokers_and_what_they_own(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Shards by topic, and coordinator journals; what a lost broker had waits for another one."""
    assert run.json("broker", "list") == []
    assert "pdctl broker list" in run.fails(3, "broker", "owned", "b1")
    topics.broker("b1")
    (shown,) = run.json("broker", "list")
    assert shown.pop("registered_ms") > 0
    assert shown == {
        "name": "b1",
        "state": "alive",
        "incarnation": "00000000000000b0",
        "address": "127.0.0.1:9",
        "zone": "a",
        "host": "",
        "version": "",
        "shards": 0,
        "journals": 16,
        "doors": {},
    }
    run.json("topic", "create", "t", "--shards", "3")
    topics.reconcile()
    (shown,) = run.json("broker", "list")
    assert (shown["shards"], shown["journals"]) == (3, 16)
    owned = run.json("broker", "owned", "b1")
    assert [each["number"] for each in owned if each["kind"] == "journal"] == list(range(16))
    assert [(each["topic"], each["number"]) for each in owned if each["kind"] == "shard"] == [
        ("default/t", 0),
        ("default/t", 1),
        ("default/t", 2),
    ]
    assert {each["alive"] for each in owned} == {True} and {each["owner_epoch"] for each in owned} == {1}
    assert run.json("topic", "show", "t")["shards"]["owners"] == {"b1": 3}
    owner = {"broker": "b1", "incarnation": "00000000000000b0", "owner_epoch": 1, "alive": True}
    assert [each["owner"] for each in run.json("shard", "list", "t")] == [owner] * 3
    lose(topics, "b1")
    assert run.json("broker", "list")[0]["state"] == "lost"
    assert {each["alive"] for each in run.json("broker", "owned", "b1")} == {False}
    assert "waits for another broker" in run("broker", "owned", "b1").stdout
    assert "b1 (lost)" in run("shard", "list", "t").stdout
    assert run.json("topic", "show", "t")["shards"]["without_owner"] == 3
    topics.broker("b2", incarnation=7)
    assert run.json("broker", "owned", "b1") == []
    assert run("broker", "owned", "b1").stderr == "nothing is assigned to broker b1\n"
    assert len(run.json("broker", "owned", "b2")) == 19


def test_a_broker_with_much(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """More than one answer of the watch has."""
    topics.broker("b1")
    for name in ("t", "u"):
        run.json("topic", "create", name, "--shards", "600")
    for _ in range(3):
        topics.reconcile()
    owned = run.json("broker", "owned", "b1")
    assert len(owned) == 1_216 and len({(each["topic"], each["number"]) for each in owned}) == 1_216
    watches = [request for name, request in topics.requests if name == "Watch"]
    assert len(watches) > 2 and isinstance(watches[0], pd_pb2.WatchRequest)


def test_the_end_of_the_key_space_is_a_number(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """A program computes with the JSON as it is."""
    run.json("topic", "create", "t")
    (shown,) = run.json("shard", "list", "t")
    assert int(shown["key_range"]["high"], 0) - int(shown["key_range"]["low"], 0) == KEY_SPACE_END
