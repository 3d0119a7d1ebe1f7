"""pdctl against the real handlers and state machine of the placement driver, over real gRPC; consensus of one in memory.

The server side is the threaded gRPC server, so that the only event loop that owns gRPC is the command's own.
"""

from __future__ import annotations

import json
import socket

import pytest
import yaml

from rangelog_pd.handlers.streams import range_age_ms
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc


@pytest.fixture
def dead_address() -> str:
    """An address that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_stream_life(run: PdctlOverGrpc) -> None:
    """A stream is created, listed, shown, changed and deleted; the JSON keys are the documented ones."""
    created = run.json("stream", "create", "flights", "--retention", "7d", "--range-size", "64MiB", "--acks", "2")
    assert set(created) == {
        "name", "stream_id", "epoch", "writer", "trim_offset", "sealed_end_offset", "range_count", "created_ms", "config",
    }  # fmt: skip
    assert created["config"] == {
        "replicas": 3,
        "acks": 2,
        "durability": "flushed",
        "compression": "none",
        "range_size_bytes_max": 64 * 1024 * 1024,
        "range_age_ms_max": range_age_ms("flights"),
        "retention_ms": 7 * 86_400_000,
        "retention_bytes": 0,
        "hot_retention_ms": 600_000,
        "tiered": True,
        "cursor_retention": "none",
        "cursor_expiry_ms": 7 * 86_400_000,
        "zones_min": 0,
        "server_labels": [],
    }
    shown = run.json("stream", "show", "flights")
    assert shown | created == shown and (shown["end_offset"], shown["record_count"], shown["health"]) == (
        0,
        0,
        "healthy",
    )
    assert run.json("stream", "list") == [created]
    changed = run.json("stream", "update", "flights", "--hot-retention", "never", "--not-tiered", "--retention", "0s")
    assert changed["config"] == created["config"] | {"hot_retention_ms": -1, "tiered": False, "retention_ms": 0}
    assert run.json("stream", "delete", "flights", "--yes") == {"stream": "flights", "deleted": True}
    assert run.json("stream", "list") == []


def test_all_settings_of_a_stream(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Each option of create sets the field that it names."""
    for name in ("rs4", "rs5"):
        topics.register(name)
    config = run.json(
        "stream", "create", "s", "--replicas", "5", "--acks", "3", "--range-size", "1MB", "--range-age", "1h",
        "--retention", "90s", "--retention-size", "2GiB", "--hot-retention", "5m", "--durability", "memory",
        "--compression", "zstd", "--not-tiered", "--cursor-retention", "keep_and_trim", "--cursor-expiry", "2d",
        "--zones-min", "2", "--server-label", "disk=ssd", "--server-label", "team=x",
    )["config"]  # fmt: skip
    assert config == {
        "replicas": 5,
        "acks": 3,
        "durability": "memory",
        "compression": "zstd",
        "range_size_bytes_max": 1_000_000,
        "range_age_ms_max": 3_600_000,
        "retention_ms": 90_000,
        "retention_bytes": 2 * 1024**3,
        "hot_retention_ms": 300_000,
        "tiered": False,
        "cursor_retention": "keep_and_trim",
        "cursor_expiry_ms": 2 * 86_400_000,
        "zones_min": 2,
        "server_labels": ["disk=ssd", "team=x"],
    }


def test_tables_say_what_json_says(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """The table of a pipe is plain aligned text with a heading; YAML is the JSON's value."""
    member.stream("clicks", durability=common_pb2.DURABILITY_MEMORY)
    table = run("stream", "list")
    heading, row = table.stdout.splitlines()
    assert heading.split()[:2] == ["NAME", "RANGES"] and row.split()[0] == "clicks" and "memory" in row
    assert table.exit_code == 0 and table.stderr == ""
    shown = run("stream", "show", "clicks").stdout
    assert "DURABILITY" in shown and "memory" in shown and "for ever" in shown
    assert yaml.safe_load(run("stream", "show", "clicks", "-o", "yaml").stdout) == run.json("stream", "show", "clicks")


def test_many_streams(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """A listing goes through all pages, in order, and a prefix narrows it."""
    names = [f"s{number:04d}" for number in range(1_203)]
    for name in names:
        member.stream(name)
    assert [each["name"] for each in run.json("stream", "list")] == names
    assert [each["name"] for each in run.json("stream", "list", "--prefix", "s000")] == names[:10]
    assert sum(name == "ListStreams" for name, _ in member.requests) >= 4


@pytest.mark.parametrize(
    "verb", [("show",), ("update", "--retention", "1d"), ("delete", "--yes"), ("trim", "--to", "0", "--yes")]
)
def test_unknown_stream(run: PdctlOverGrpc, verb: tuple[str, ...]) -> None:
    """An unknown stream is exit code 3, and the line says where to look."""
    assert "pdctl stream list" in run.fails(3, "stream", verb[0], "nope", *verb[1:])


def test_unknown_stream_elsewhere(run: PdctlOverGrpc) -> None:
    """So it is for ranges and objects."""
    for noun in ("range", "object"):
        assert "nope" in run.fails(3, noun, "list", "nope")
        assert "nope" in run.fails(3, noun, "show", "nope", "1")


def test_stream_exists(run: PdctlOverGrpc) -> None:
    """A name that is taken is exit code 5."""
    assert run("stream", "create", "s").exit_code == 0
    assert "choose another name" in run.fails(5, "stream", "create", "s")


def test_trim(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Trimming moves the start; trimming beyond what is sealed is refused and says how far it goes."""
    for name in ("rs1", "rs2", "rs3"):
        member.register(name)
    member.stream("s")
    member.ranges("s", 3)
    assert run.json("stream", "trim", "s", "--to", "15", "--yes")["trim_offset"] == 15
    assert "30" in run.fails(1, "stream", "trim", "s", "--to", "31", "--yes")


def test_ranges(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Ranges are listed over all pages and shown one by one, with replicas, state and ends."""
    member.reconcile()  # the cluster version rises
    for name in ("rs1", "rs2", "rs3"):
        member.register(name, incarnation=0xFEDCBA9876543210, zone="z1", rack="r1")
    member.stream("s")
    member.ranges("s", 520)
    ranges = run.json("range", "list", "s")
    assert [each["index"] for each in ranges] == list(range(521))
    assert [each["start_offset"] for each in ranges] == [10 * index for index in range(521)]
    assert ranges[0]["state"] == "sealed" and ranges[0]["end_offset"] == 10
    assert ranges[-1]["state"] == "open" and ranges[-1]["end_offset"] is None
    assert [each["server"] for each in ranges[7]["replicas"]] == ["rs1", "rs2", "rs3"]
    assert ranges[7]["replicas"][0]["incarnation"] == "fedcba9876543210"
    shown = run.json("range", "show", "s", "7")
    assert all((each.pop("zone"), each.pop("rack")) == ("z1", "r1") for each in shown["replicas"])
    assert shown == ranges[7]
    assert [each["index"] for each in run.json("range", "list", "s", "--from-offset", "5195")] == [519, 520]
    assert "rs1, rs2, rs3" in run("range", "show", "s", "7").stdout
    assert "pdctl range list s" in run.fails(3, "range", "show", "s", "521")
    run.fails(2, "range", "show", "s", str(1 << 32))


def test_objects(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Objects are listed by state, shown by id, and one that is not there is exit code 3."""
    for name in ("rs1", "rs2", "rs3"):
        member.register(name)
    member.stream("s")
    stream_id = member.ranges("s", 2).stream_id
    prepared = []
    for index in range(2):
        request = pd_pb2.PrepareObjectRequest(
            stream_id=stream_id, range_index=index, start_offset=10 * index, end_offset=10 * index + 10,
            server="rs1", incarnation=0xABC,
        )  # fmt: skip
        prepared.append(member.do("PrepareObject", request, pd_pb2.PrepareObjectResponse).object)
    commit = pd_pb2.CommitObjectRequest(
        object_id=prepared[0].object_id, server="rs1", incarnation=0xABC, size_bytes=1234, digest="sha256:" + "ab" * 32,
        epoch=prepared[0].epoch, footer_size_bytes=8,
        row_groups=[common_pb2.RowGroup(start_offset=0, count=10, timestamp_ms_min=1, timestamp_ms_max=2)],
    )  # fmt: skip
    member.do("CommitObject", commit, pd_pb2.CommitObjectResponse)
    (found,) = run.json("object", "list", "s")
    assert (found["object_id"], found["size_bytes"], found["state"]) == (prepared[0].object_id, 1234, "committed")
    assert run.json("object", "show", "s", str(found["object_id"])) == found
    (other,) = run.json("object", "list", "s", "--state", "prepared")
    assert other["object_id"] == prepared[1].object_id
    assert run.json("object", "show", "s", str(other["object_id"])) == other
    assert "sha256:abab" in run("object", "show", "s", str(found["object_id"])).stdout
    run.fails(3, "object", "show", "s", "999")


def test_servers(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Range servers are listed and shown; an unknown one is exit code 3."""
    member.register("rs1", zone="rack1", incarnation=0xFFFF_FFFF_FFFF_FFFF)
    member.register("rs2", zone="rack2")
    first, second = run.json("server", "list")
    assert (first["name"], first["health"], first["zone"], first["incarnation"]) == ("rs1", "alive", "rack1", "f" * 16)
    assert second["zone"] == "rack2"
    assert run.json("server", "show", "rs2") == second
    assert "rack1" in run("server", "show", "rs1").stdout
    assert "pdctl server list" in run.fails(3, "server", "show", "rs9")


def test_healthy_cluster(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """All members and servers there: healthy, exit code 0."""
    member.register("rs1")
    member.stream("s")
    found = run.json("cluster", "status")
    assert found["health"] == "healthy" and found["stream_count"] == 1
    alone = {
        "name": "pd1",
        "address": member.address,
        "leader": True,
        "reachable": True,
        "feature_level": FEATURE_LEVEL,
    }
    assert found["members"] == [alone]
    assert [each["name"] for each in found["servers"]] == ["rs1"]
    table = run("cluster", "status")
    assert table.exit_code == 0 and "healthy" in table.stdout and "leader" in table.stdout


def test_cluster_without_majority(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Without a majority status still shows what the member knows, and the exit code is 4."""
    member.register("rs1")
    member.consensus.set_leader(None)
    result = run("cluster", "status", "-o", "json")
    assert result.exit_code == 4 and json.loads(result.stdout)["health"] == "unavailable"
    assert "majority" in run.fails(4, "--timeout", "0.3", "stream", "list")


def test_unreachable(dead_address: str) -> None:
    """When nobody answers, one line names the endpoints; that it comes in time is in tests/integration/test_pdctl.py."""
    assert dead_address in PdctlOverGrpc(dead_address).fails(4, "--timeout", "0.3", "stream", "list")


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "../etc"),
        ("create", "x" * 201),
        ("create", "s", "--replicas", "2", "--acks", "3"),
        ("create", "s", "--range-size", "1B"),
    ],
)
def test_what_the_placement_driver_refuses(run: PdctlOverGrpc, arguments: tuple[str, ...]) -> None:
    """What only the placement driver can judge is one line and exit code 2 as well, and nothing is changed."""
    run.fails(2, "stream", *arguments)
    assert run.json("stream", "list") == []


def test_huge_name(run: PdctlOverGrpc) -> None:
    """A name of half a megabyte comes back as an answer, not as a broken call."""
    assert len(run.fails(3, "stream", "show", "x" * 500_000)) < 2_000
