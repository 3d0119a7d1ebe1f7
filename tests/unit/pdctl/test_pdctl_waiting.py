"""`pdctl topic truncate`, `seal` and `delete` return once what they have started is over."""

from __future__ import annotations

import io
from typing import Any

import pytest

from pdctl.topics import waiting
from rangelog_core.errors import RequestTimeout, Unavailable
from rangelog_core.ids import shard_stream_name
from rangelog_core.topic_names import TopicName
from rangelog_proto.v1 import topic_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

TRUNCATE = ("topic", "truncate", "t", "0=15", "1=5", "--yes")


@pytest.fixture
def made(run: PdctlOverGrpc, topics: InProcessPd) -> dict[str, Any]:
    """A topic of two shards with something to truncate."""
    created: dict[str, Any] = run.json("topic", "create", "t", "--shards", "2")
    for shard_id in range(2):
        topics.ranges(shard_stream_name(created["topic_id"], shard_id), 2)
    return created


def before_the(topics: InProcessPd, monkeypatch: pytest.MonkeyPatch, name: str, count: int, work: Any) -> None:
    """Do something before the so-manieth call of an RPC."""
    calls: list[str] = []

    def step(called: str) -> None:
        calls.append(called)
        if called == name and calls.count(name) == count:
            work()

    monkeypatch.setattr(topics, "before", step)


def test_a_truncation_is_waited_for(
    run: PdctlOverGrpc, topics: InProcessPd, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are gone when the command returns, so that a seal behind it is not refused."""
    before_the(topics, monkeypatch, "DescribeTopic", 4, topics.cover)  # 1, 2: the command; then it waits
    assert run.json(*TRUNCATE)["state"] == "active"
    assert run.json("stream", "show", shard_stream_name(made["topic_id"], 0))["trim_offset"] == 15
    assert run.json("topic", "seal", "t", "--yes", "--no-wait")["state"] == "sealing"


def test_a_truncation_that_takes_too_long(run: PdctlOverGrpc, topics: InProcessPd, made: dict[str, Any]) -> None:
    """The wait ends in time with exit code 4, and names what it waits for; --no-wait does not wait."""
    said = run.fails(4, *TRUNCATE, "--wait", "200ms")
    assert "topic default/t is still truncating after 0.2 s" in said
    assert "waiting for snapshots of the producers of 2 shards" in said and "pdctl task list" in said
    topics.cover()
    assert run.json("topic", "truncate", "t", "0=20", "1=5", "--yes", "--no-wait")["state"] == "truncating"


def test_a_later_truncation_is_not_waited_for(
    run: PdctlOverGrpc, topics: InProcessPd, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that another caller has started since: the command's own is over."""

    def truncate_again() -> None:
        topics.cover()
        request = topic_pb2.TruncateTopicRequest(
            topic=topic_pb2.TopicReference(topic_id=made["topic_id"]),
            cut=[topic_pb2.ShardPosition(shard_id=0, offset=20), topic_pb2.ShardPosition(shard_id=1, offset=5)],
        )
        topics.do("TruncateTopic", request, topic_pb2.TruncateTopicResponse)

    before_the(topics, monkeypatch, "DescribeTopic", 4, truncate_again)
    assert run.json(*TRUNCATE)["state"] == "truncating"
    assert run.json("stream", "show", shard_stream_name(made["topic_id"], 0))["trim_offset"] == 15


def test_a_seal_is_waited_for(run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is sealed when the command returns; in time it ends with the number of shards that are left."""

    def end(topic_id: int, shard_id: int) -> None:
        request = topic_pb2.EndShardRequest(topic_id=topic_id, end=topics.shard_end(topic_id, shard_id))
        topics.do("EndShard", request, topic_pb2.EndShardResponse)

    first = run.json("topic", "create", "t", "--shards", "2")["topic_id"]
    before_the(topics, monkeypatch, "DescribeTopic", 1, lambda: end(first, 0))
    said = run.fails(4, "topic", "seal", "t", "--yes", "--wait", "100ms")
    assert "still sealing" in said and "waiting for the end of 1 shard:" in said
    second = run.json("topic", "create", "u")["topic_id"]
    before_the(topics, monkeypatch, "DescribeTopic", 2, lambda: end(second, 0))
    assert run.json("topic", "seal", "u", "--yes")["state"] == "sealed"


def test_a_deletion_in_parts_is_waited_for(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free when the command returns."""
    from rangelog_pd.state import topic_work

    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 1)
    run.json("topic", "create", "t", "--shards", "3")
    said = run.fails(4, "topic", "delete", "t", "--force", "--yes", "--wait", "100ms")
    assert "still deleting" in said and "2 shards left" in said
    for _ in range(3):
        topics.reconcile()
    run.json("topic", "create", "t", "--shards", "2")
    before_the(topics, monkeypatch, "DescribeTopic", 2, lambda: [topics.reconcile() for _ in range(2)])
    assert run("topic", "delete", "t", "--force", "--yes").stdout == "default/t is deleted\n"
    run.json("topic", "create", "t")


def test_a_lost_connection_during_a_wait_names_what_goes_on(
    run: PdctlOverGrpc, topics: InProcessPd, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation is started, so the user must learn it."""

    def refuse() -> None:
        raise Unavailable("no placement driver leads")

    calls: list[str] = []

    def step(name: str) -> None:
        calls.append(name)
        if "TruncateTopic" in calls and name == "DescribeTopic":
            refuse()

    monkeypatch.setattr(topics, "before", step)
    said = run.fails(4, "--timeout", "2", *TRUNCATE)
    assert "topic default/t was truncating: it goes on" in said


async def test_progress_is_shown_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for each number of shards that are left, however often it is asked for."""
    monkeypatch.setattr(waiting, "POLL_S", 0.001)
    monkeypatch.setattr(waiting, "POLL_S_MAX", 0.001)
    left = iter([2, 2, 1, 1, 1])
    started = topic_pb2.Topic(topic_id=1, state=topic_pb2.TOPIC_STATE_SEALING)

    async def shards_left(pd: object, topic_id: int, timeout_s: float) -> int:
        count = next(left, None)
        if count is None:
            raise RequestTimeout("enough")
        return count

    class _Pd:
        def __getattr__(self, name: str) -> Any:
            async def call(*arguments: Any, **options: Any) -> Any:
                return topic_pb2.DescribeTopicResponse(topic=started)

            return call

    monkeypatch.setattr(waiting, "_shards_left", shards_left)
    shown = io.StringIO()
    pd: Any = _Pd()
    with pytest.raises(Unavailable, match="it goes on"):
        await waiting.wait_until_over(
            pd, TopicName("default", "t"), started, 1, 60, lambda line: print(line, file=shown)
        )
    assert shown.getvalue().splitlines() == [
        "topic default/t is sealing: waiting for the end of 2 shards",
        "topic default/t is sealing: waiting for the end of 1 shard",
    ]
