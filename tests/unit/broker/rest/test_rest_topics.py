"""Namespaces, streams and topics by REST, over the client on a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_broker.rest.app import make_app
from tests.support.owner_cluster import owner_cluster
from tests.support.rest_caller import RestCaller

pytestmark = pytest.mark.virtual

TOPICS = "/v1/namespaces/air/topics"


@pytest.fixture
async def call() -> AsyncIterator[RestCaller]:
    """The application over an empty cluster."""
    async with owner_cluster() as cluster:
        yield RestCaller(make_app(cluster.client(), token=None))


async def test_a_stream_is_created_changed_trimmed_and_deleted(call: RestCaller) -> None:
    """Each operation answers with the stream as it is then; a deleted one is not found."""
    made = await call("POST", "/v1/streams", {"name": "s", "config": {"compression": "zstd", "replicas": 3}})
    assert (made.status, made.body["name"], made.body["compression"]) == (201, "s", "zstd")
    changed = await call("PATCH", "/v1/streams/s", {"hot_retention_seconds": "forever"})
    assert (changed.status, changed.body["hot_retention_ms"]) == (200, -1)
    assert (await call("GET", "/v1/streams/s")).body == changed.body
    assert (await call("POST", "/v1/streams/s/seal")).body == {"end_offset": 0}
    assert (await call("POST", "/v1/streams/s/trim", {"trim_offset": 0})).body["trim_offset"] == 0
    beyond = await call("POST", "/v1/streams/s/trim", {"trim_offset": 9})
    assert (beyond.status, beyond.body["code"]) == (409, "OFFSET_OUT_OF_RANGE")
    assert (await call("DELETE", "/v1/streams/s")).status == 204
    gone = await call("GET", "/v1/streams/s")
    assert (gone.status, gone.body["code"], gone.body["retriable"]) == (404, "STREAM_NOT_FOUND", False)


@pytest.mark.parametrize("kind", ["streams", "namespaces", "topics"])
async def test_pages_follow_each_other_without_gap_and_repeat(call: RestCaller, kind: str) -> None:
    """Any size of a page gives the same names in order; the last page has no token."""
    names = [f"n{number}" for number in range(5)]
    for name in names:
        path = {"streams": "/v1/streams", "namespaces": "/v1/namespaces", "topics": "/v1/namespaces/n0/topics"}[kind]
        if kind == "topics" and name == "n0":
            await call("POST", "/v1/namespaces", {"name": "n0"})
        assert (await call("POST", path, {"name": name})).status == 201
    for size in (1, 2, 3, 5, 6):
        found: list[Any] = []
        token = ""
        while True:
            page = (await call("GET", f"/v1/{kind}?page_size={size}&page_token={token}")).body
            assert len(page[kind]) <= size
            found += page[kind]
            token = page["next_page_token"]
            if not token:
                break
        shown = [each if kind == "namespaces" else each["name"] for each in found]
        assert shown == [f"n0/{name}" if kind == "topics" else name for name in names]
    empty = await call("GET", f"/v1/{kind}?page_size=0")
    assert (empty.status, empty.body["code"]) == (400, "INVALID_ARGUMENT")


async def test_a_topic_is_created_listed_by_tag_changed_and_deleted(call: RestCaller) -> None:
    """Configuration and tags come back as they were sent; the version guards a change."""
    assert (await call("POST", "/v1/namespaces", {"name": "air"})).status == 201
    body = {
        "name": "flights",
        "shards": 2,
        "tags": {"team": "ops"},
        "config": {
            "scaling": {"kind": "events", "target_per_s": 500},
            "retention": {"age_seconds": 60},
            "stream": {"hot_retention_seconds": "forever"},
        },
    }
    made = await call("POST", TOPICS, body)
    assert (made.status, made.body["name"], made.body["shard_count"]) == (201, "air/flights", 2)
    assert made.body["config"]["scaling"]["kind"] == "events"
    assert made.body["config"]["retention"]["age_seconds"] == 60
    assert made.body["config"]["stream"]["hot_retention_seconds"] == "forever"
    assert (await call("POST", TOPICS, {"name": "others"})).status == 201
    tagged = await call("GET", "/v1/topics?tag=team=ops")
    assert [each["name"] for each in tagged.body["topics"]] == ["air/flights"]
    version = made.body["version"]
    change = {"set_tags": {"a": "b"}, "remove_tags": ["team"], "expected_version": version}
    changed = await call("PATCH", f"{TOPICS}/flights", change)
    assert changed.body["tags"] == {"a": "b"}
    late = await call("PATCH", f"{TOPICS}/flights", change)
    assert (late.status, late.body["code"]) == (409, "PRECONDITION_FAILED")
    nothing = await call("PATCH", f"{TOPICS}/flights", {})
    assert (nothing.status, nothing.body["code"]) == (400, "INVALID_ARGUMENT")
    assert (await call("DELETE", f"{TOPICS}/others?force=true")).status == 204
    assert (await call("GET", f"{TOPICS}/others")).body["code"] == "TOPIC_NOT_FOUND"


async def test_shards_and_cuts(call: RestCaller) -> None:
    """The map tiles the key space; a cut that was found is one that a truncation takes."""
    await call("POST", "/v1/namespaces", {"name": "air"})
    await call("POST", TOPICS, {"name": "flights", "shards": 2})
    shards = (await call("GET", f"{TOPICS}/flights/shards")).body["shards"]
    low, high = (each["key_range"] for each in shards)
    assert low == {"low": "0x" + "0" * 32, "high": "0x8" + "0" * 31}
    assert high == {"low": "0x8" + "0" * 31, "high": "0x1" + "0" * 32}
    scaling = (await call("GET", f"{TOPICS}/flights/scaling")).body
    assert (scaling["state"], scaling["shard_count"], scaling["policy"]["kind"]) == ("active", 2, "fixed")
    cut = (await call("GET", f"{TOPICS}/flights/cut?place=head")).body
    assert cut["offsets"] == {"0": 0, "1": 0}
    assert (await call("POST", f"{TOPICS}/flights/truncate", cut)).status == 200
    other = await call("POST", f"{TOPICS}/flights/truncate", cut | {"topic_id": 99})
    assert (other.status, other.body["code"]) == (400, "INVALID_ARGUMENT")
    assert (await call("GET", f"{TOPICS}/flights/cut?time=2026-01-01T00:00:00")).status == 400
    assert (await call("GET", f"{TOPICS}/flights/cut?time=2026-01-01T00:00:00Z")).body["topic_id"] == cut["topic_id"]


async def test_seals_and_scales_by_state(call: RestCaller) -> None:
    """A seal starts; what the state does not allow is a conflict."""
    await call("POST", "/v1/namespaces", {"name": "air"})
    await call("POST", TOPICS, {"name": "flights"})
    sealed = await call("POST", f"{TOPICS}/flights/seal")
    assert (sealed.status, sealed.body["state"]) == (200, "sealing")
    split = await call("POST", f"{TOPICS}/flights/scaling/split", {"shard_id": 0, "timeout_s": 1})
    assert (split.status, split.body["code"]) == (409, "TOPIC_STATE_FORBIDS")


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("split", {"shard_id": 7}, "SHARD_NOT_FOUND"),
        ("split", {"shard_id": 0, "parts": 2, "at": ["0x8"]}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": 0, "at": ["0x0"]}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": 0, "at": ["8"]}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": 0, "at": ["0x1" + "0" * 32]}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": -1}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": 0, "parts": 1}, "INVALID_ARGUMENT"),
        ("split", {"shard_id": 0, "timeout_s": 1e9}, "INVALID_ARGUMENT"),
        ("merge", {"shard_ids": [0]}, "INVALID_ARGUMENT"),
        ("merge", {"shard_ids": [0, 0]}, "INVALID_ARGUMENT"),
        ("merge", {"shard_ids": [0, 2]}, "KEY_RANGE_GAP"),
        ("cancel", None, "TOPIC_STATE_FORBIDS"),
    ],
)
async def test_bad_scales(call: RestCaller, path: str, body: Any, code: str) -> None:
    """Nothing is started; the error names what is wrong."""
    await call("POST", "/v1/namespaces", {"name": "air"})
    await call("POST", TOPICS, {"name": "flights", "shards": 3})
    refused = await call("POST", f"{TOPICS}/flights/scaling/{path}", body)
    assert refused.body["code"] == code and refused.status in (400, 404, 409)
    assert (await call("GET", f"{TOPICS}/flights")).body["state"] == "active"
