"""pdctl object manifest and streams: the live objects as the placement driver has them, and the streams that a store names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rangelog_core.manifest import ManifestShard, StreamManifest, parse_manifest
from rangelog_core.object_keys import manifest_key
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_tier import open_object_store
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def servers(member: InProcessPd) -> InProcessPd:
    """The member, with three range servers."""
    for name in ("rs1", "rs2", "rs3"):
        member.register(name)
    return member


def tier(member: InProcessPd, stream_id: int, index: int, start: int, end: int) -> common_pb2.Object:
    """Prepare and commit an object of a range, as a range server does; return it as prepared."""
    request = pd_pb2.PrepareObjectRequest(
        stream_id=stream_id, range_index=index, start_offset=start, end_offset=end, server="rs1", incarnation=0xABC,
    )  # fmt: skip
    made = member.do("PrepareObject", request, pd_pb2.PrepareObjectResponse).object
    commit = pd_pb2.CommitObjectRequest(
        object_id=made.object_id, server="rs1", incarnation=0xABC, size_bytes=1234, digest=DIGEST,
        epoch=made.epoch, footer_size_bytes=8,
        row_groups=[common_pb2.RowGroup(start_offset=start, count=end - start, timestamp_ms_min=1, timestamp_ms_max=2)],
    )  # fmt: skip
    member.do("CommitObject", commit, pd_pb2.CommitObjectResponse)
    return made


def test_a_manifest_names_the_live_objects(run: PdctlOverGrpc, servers: InProcessPd) -> None:
    """Committed objects that end beyond the trim offset, whichever range was tiered first; prepared ones are not there."""
    servers.stream("s")
    stream_id = servers.ranges("s", 4).stream_id
    empty = run.json("object", "manifest", "s")
    assert (empty["objects"], empty["tiered"], empty["revision"]) == ([], [], 0)
    tier(servers, stream_id, 0, 0, 10)
    tier(servers, stream_id, 3, 30, 40)
    tier(servers, stream_id, 1, 10, 14)
    tier(servers, stream_id, 1, 14, 20)
    prepare = pd_pb2.PrepareObjectRequest(
        stream_id=stream_id, range_index=2, start_offset=20, end_offset=30, server="rs1", incarnation=0xABC
    )
    servers.do("PrepareObject", prepare, pd_pb2.PrepareObjectResponse)
    found = run.json("object", "manifest", "s")
    assert found["rangelog.manifest_version"] == 1
    assert (found["stream"], found["stream_id"], found["folder"]) == ("s", stream_id, f"streams/{stream_id}/")
    spans = [(each["start_offset"], each["end_offset"]) for each in found["objects"]]
    assert spans == [(0, 10), (10, 14), (14, 20), (30, 40)]
    assert found["tiered"] == [{"start_offset": 0, "end_offset": 20}, {"start_offset": 30, "end_offset": 40}]
    assert (found["revision"], found["record_count"], found["size_bytes"]) == (30, 30, 4 * 1234)
    assert found["objects"][1].items() >= {"record_count": 4, "digest": DIGEST, "timestamp_ms_max": 2}.items()
    listed = run.json("object", "list", "s")
    assert [each["key"] for each in found["objects"]] == [each["key"] for each in listed]

    servers.do("TrimStream", pd_pb2.TrimStreamRequest(name="s", trim_offset=15), pd_pb2.TrimStreamResponse)
    later = run.json("object", "manifest", "s")
    assert [(each["start_offset"], each["end_offset"]) for each in later["objects"]] == [(14, 20), (30, 40)]
    assert later["tiered"] == [{"start_offset": 15, "end_offset": 20}, {"start_offset": 30, "end_offset": 40}]
    assert (later["trim_offset"], later["record_count"]) == (15, 15)
    assert later["revision"] > found["revision"]


def test_forms_of_a_manifest(run: PdctlOverGrpc, servers: InProcessPd) -> None:
    """A table, YAML, or paths alone; with the places of the objects by the cluster's tier, or by a prefix of one's own."""
    servers.stream("s")
    key = tier(servers, servers.ranges("s", 1).stream_id, 0, 0, 10).key
    assert run("object", "manifest", "s").stdout.split()[-1] == key
    assert run("object", "manifest", "s", "-o", "paths").stdout == f"{key}\n"
    assert run("object", "manifest", "s", "-o", "paths", "--urls").stdout == f"/nowhere/{key}\n"
    with_prefix = run.json("object", "manifest", "s", "--url-prefix", "s3://b/logs/")
    assert with_prefix["objects"][0]["url"] == f"s3://b/logs/{key}"
    as_yaml = yaml.safe_load(run("object", "manifest", "s", "-o", "yaml", "--url-prefix", "s3://b/logs").stdout)
    assert as_yaml["objects"] == with_prefix["objects"]


def test_the_manifest_of_a_topic(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """All shards by id, with what is read before and after each, and the stream behind it."""
    run.json("namespace", "create", "shop")
    run.json("topic", "create", "shop/orders", "--shards", "2")
    shards = {each["shard_id"]: each for each in run.json("shard", "list", "shop/orders")}
    topics.ranges(shards[1]["stream"], 1)
    made = tier(topics, shards[1]["stream_id"], 0, 0, 10)
    found = run.json("object", "manifest", "shop/orders")
    assert (found["rangelog.manifest_version"], found["topic"]) == (1, "shop/orders")
    assert [each["shard"]["shard_id"] for each in found["shards"]] == [0, 1]
    assert [[row["key"] for row in each["objects"]] for each in found["shards"]] == [[], [made.key]]
    second = found["shards"][1]
    assert second["shard"] == {"topic": "shop/orders", "topic_id": found["topic_id"], "shard_id": 1}
    assert (second["key_range"], second["state"]) == (shards[1]["key_range"], "current")
    table = run("object", "manifest", "shop/orders").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["SHARD", "1"]
    by_stream = run.json("object", "manifest", second["stream"])
    assert by_stream["shard"] == second["shard"] and by_stream["objects"] == second["objects"]


def test_what_has_no_manifest(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """An unknown stream or topic is exit 3; a bare name says how topics are given."""
    assert "default/x" in run.fails(3, "object", "manifest", "x")
    run.fails(3, "object", "manifest", "shop/x")
    run.fails(2, "object", "manifest", "a/b/c")
    topics.stream("s")
    assert "no objects yet" in run("object", "manifest", "s").stderr


def test_streams_of_a_store(run: PdctlOverGrpc, servers: InProcessPd, tmp_path: Path) -> None:
    """Each manifest is a row; nothing is asked of the cluster, and what is damaged does not hide the rest."""
    url = f"file://{tmp_path}/tier"
    assert "there is no directory" in run.fails(2, "object", "streams", "--tier-url", url)
    store = open_object_store(url, create=True)
    shard = ManifestShard("shop/orders", 4, 1)
    for stream_id, name, of in ((7, "flights", None), (9, "_topic-4-shard-1", shard)):
        made = StreamManifest(name, stream_id, of, 0, 1, ())
        store.put_if_absent(manifest_key(stream_id, name), made.to_bytes())
        assert parse_manifest(made.to_bytes(), "it") == made
    store.put_if_absent(manifest_key(10, "cut"), b'{"rangelog.manifest_version": 1')
    store.put_if_absent(manifest_key(11, "new"), b'{"rangelog.manifest_version": 9}')
    result = run("object", "streams", "--tier-url", url, "-o", "json")
    rows = json.loads(result.stdout)
    assert [(each["stream"], each["topic"], each["shard_id"], each["folder"]) for each in rows] == [
        ("flights", None, None, "streams/7/"),
        ("_topic-4-shard-1", "shop/orders", 1, "streams/9/"),
    ]
    assert result.stderr.count("\n") == 2 and "10/cut" in result.stderr and "upgrade" in result.stderr
    assert servers.requests == []
    assert "shop/orders 1" in run("object", "streams", "--tier-url", url).stdout
    assert "bad tier URL" in run.fails(2, "object", "streams", "--tier-url", "ftp://x")
    assert "/nowhere" in run.fails(2, "object", "streams")
