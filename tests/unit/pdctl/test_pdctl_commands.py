"""What each verb asks of the placement driver, and how it prints the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from rangelog_core.errors import UnsupportedVersion
from rangelog_proto.v1 import common_pb2, inspection_pb2, pd_pb2, tier_pb2


def _stream(name: str = "flights", **config: Any) -> common_pb2.Stream:
    shape = common_pb2.StreamConfig(replicas=3, acks=2, durability="DURABILITY_FLUSHED", compression="COMPRESSION_NONE")
    shape.MergeFrom(common_pb2.StreamConfig(**config))
    return common_pb2.Stream(
        stream_id=7, name=name, config=shape, epoch=4, next_offset=100, range_count=2, created_ms=1
    )


def _range(index: int, *, sealed: bool = True, health: str = "SERVER_HEALTH_ALIVE") -> common_pb2.Range:
    return common_pb2.Range(
        stream_id=7,
        index=index,
        epoch=4,
        start_offset=index * 10,
        end_offset=index * 10 + 10 if sealed else 0,
        state="RANGE_STATE_SEALED" if sealed else "RANGE_STATE_OPEN",
        replicas=[common_pb2.Replica(server="rs1", incarnation=255, data_address="h:1", health=health)],
    )


def _server(name: str, health: str = "SERVER_HEALTH_ALIVE") -> common_pb2.Server:
    return common_pb2.Server(name=name, incarnation=1, health=health, data_address="h:1", used_bytes=1 << 20)


def _cluster(**changes: Any) -> pd_pb2.DescribeClusterResponse:
    described: dict[str, Any] = {
        "cluster_id": "c",
        "has_majority": True,
        "members": [
            pd_pb2.PdMember(name="pd1", address="h:1", leader=True, reachable=True),
            pd_pb2.PdMember(name="pd2", address="h:2", reachable=True),
        ],
        "servers": [_server("rs1")],
        "stream_count": 1,
    }
    return pd_pb2.DescribeClusterResponse(**(described | changes))


def test_create_sends_what_was_asked(pd: Any, pdctl: Any) -> None:
    """Units become numbers, words become enums, `never` becomes -1, and a request id makes repeats safe."""
    pd.answers["create_stream"] = pd_pb2.CreateStreamResponse(stream=_stream())
    bounds = ["--retention=7d", "--retention-size=1GiB", "--range-size=64MiB", "--range-age=1h"]
    copies = ["--replicas=5", "--acks=3", "--hot-retention=never", "--not-tiered"]
    words = ["--durability=memory", "--compression=zstd"]
    shown = pdctl.json("stream", "create", "flights", *bounds, *copies, *words)
    assert shown["name"] == "flights"
    ((_, request),) = pd.requests
    assert request.request_id and request.name == "flights"
    assert request.config == common_pb2.StreamConfig(
        replicas=5,
        acks=3,
        range_size_bytes_max=64 << 20,
        range_age_ms_max=3_600_000,
        retention_ms=604_800_000,
        retention_bytes=1 << 30,
        hot_retention_ms=-1,
        durability="DURABILITY_MEMORY",
        compression="COMPRESSION_ZSTD",
        tiered=False,
    )


def test_update_names_only_the_given_fields(pd: Any, pdctl: Any) -> None:
    """What was not given is not in the field mask; a zero that was given is."""
    pd.answers["update_stream"] = pd_pb2.UpdateStreamResponse(stream=_stream())
    pdctl.json("stream", "update", "flights", "--retention", "0s", "--hot-retention", "never")
    ((_, request),) = pd.requests
    assert sorted(request.fields) == ["hot_retention_ms", "retention_ms"]
    assert request.config.retention_ms == 0 and request.config.hot_retention_ms == -1


def test_update_without_options_is_usage(pd: Any, pdctl: Any) -> None:
    """Nothing to change is said before anybody is asked."""
    assert "at least one option" in pdctl.fails(2, "stream", "update", "flights")
    assert pd.requests == []


@pytest.mark.parametrize(("durability", "word"), [("DURABILITY_FLUSHED", "flushed"), ("DURABILITY_MEMORY", "memory")])
def test_durability_is_shown(pd: Any, pdctl: Any, durability: str, word: str) -> None:
    """A stream that acks before the flush is seen to, in list and show and in every format."""
    stream = _stream(durability=durability, hot_retention_ms=-1)
    pd.answers["inspect_ranges"] = inspection_pb2.InspectRangesResponse(stream=stream)
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    pd.answers["list_ranges"] = pd_pb2.ListRangesResponse(stream=stream)
    pd.answers["list_streams"] = pd_pb2.ListStreamsResponse(streams=[stream])
    assert word in pdctl("stream", "list").stdout
    shown = pdctl("stream", "show", "flights").stdout
    assert f"DURABILITY        {word}\n" in shown and "HOT RETENTION     never\n" in shown
    assert pdctl.json("stream", "show", "flights")["config"]["durability"] == word
    assert yaml.safe_load(pdctl("stream", "show", "flights", "-o", "yaml").stdout)["config"]["durability"] == word


def test_streams_are_paged_through(pd: Any, pdctl: Any) -> None:
    """A list longer than a page is fetched page by page, and printed whole."""
    pages = {"": (["a", "b"], "b"), "b": (["c"], "c"), "c": (["d"], "")}

    def answer(request: Any) -> pd_pb2.ListStreamsResponse:
        names, token = pages[request.page_token]
        return pd_pb2.ListStreamsResponse(streams=[_stream(name) for name in names], next_page_token=token)

    pd.answers["list_streams"] = answer
    assert [each["name"] for each in pdctl.json("stream", "list")] == ["a", "b", "c", "d"]
    assert all(0 < request.page_size <= 1000 for _, request in pd.requests)


def test_ranges_are_paged_through(pd: Any, pdctl: Any) -> None:
    """So are ranges, by index; an open range has no end."""

    def answer(request: Any) -> pd_pb2.ListRangesResponse:
        index = request.from_index
        return pd_pb2.ListRangesResponse(ranges=[_range(index, sealed=index < 3)], more=index < 3)

    pd.answers["list_ranges"] = answer
    shown = pdctl.json("range", "list", "flights")
    assert [each["index"] for each in shown] == [0, 1, 2, 3]
    assert [each["end_offset"] for each in shown] == [10, 20, 30, None]
    assert shown[0]["state"] == "sealed" and shown[3]["state"] == "open"
    assert shown[0]["replicas"] == [
        {"server": "rs1", "incarnation": "00000000000000ff", "data_address": "h:1", "health": "alive", "reason": ""}
    ]


def test_a_replica_that_is_not_alive_is_marked(pd: Any, pdctl: Any) -> None:
    """A table of ranges says which copies are at risk."""
    pd.answers["list_ranges"] = pd_pb2.ListRangesResponse(ranges=[_range(0, health="SERVER_HEALTH_DEAD")])
    assert "rs1 (dead)" in pdctl("range", "list", "flights").stdout


def test_range_show_asks_for_that_range(pd: Any, pdctl: Any) -> None:
    """One range does not cost the list; one that is not there is exit 3."""
    pd.answers["list_ranges"] = lambda request: pd_pb2.ListRangesResponse(ranges=[_range(5)], more=True)
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    assert pdctl.json("range", "show", "flights", "5")["start_offset"] == 50
    assert [name for name, _ in pd.requests] == ["list_ranges", "list_servers"] and pd.requests[0][1].from_index == 5
    assert "has no range 4" in pdctl.fails(3, "range", "show", "flights", "4")


def test_objects_are_paged_through(pd: Any, pdctl: Any) -> None:
    """Objects go on where the last page ended."""

    def answer(request: Any) -> pd_pb2.ListObjectsResponse:
        number = request.from_offset // 10
        found = common_pb2.Object(
            object_id=number + 1,
            start_offset=number * 10,
            end_offset=number * 10 + 10,
            state="OBJECT_STATE_COMMITTED",
            key=f"k{number}",
        )
        return pd_pb2.ListObjectsResponse(objects=[found], more=number < 2)

    pd.answers["list_objects"] = answer
    shown = pdctl.json("object", "list", "flights")
    assert [(each["object_id"], each["state"]) for each in shown] == [
        (1, "committed"),
        (2, "committed"),
        (3, "committed"),
    ]
    assert pdctl.json("object", "show", "flights", "2")["key"] == "k1"
    assert "has no object 9" in pdctl.fails(3, "object", "show", "flights", "9")


def test_server_show(pd: Any, pdctl: Any) -> None:
    """A server by name; an unknown one is exit 3."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse(
        servers=[_server("rs1"), _server("rs2", "SERVER_HEALTH_DEAD")]
    )
    assert pdctl.json("server", "show", "rs2")["health"] == "dead"
    assert [each["name"] for each in pdctl.json("server", "list")] == ["rs1", "rs2"]
    assert "pdctl server list" in pdctl.fails(3, "server", "show", "rs3")


def test_tasks(pd: Any, pdctl: Any) -> None:
    """A failing task is shown with its last error, on one line and without what steers a terminal."""
    task = pd_pb2.Task(
        task_id="t", kind="upload", stream_name="s", server="rs1", attempts=3, last_error="no\nroute\x1b[2J"
    )
    pd.answers["list_tasks"] = pd_pb2.ListTasksResponse(tasks=[task])
    shown = pdctl("task", "list", "--failing").stdout
    assert "no route" in shown and "\x1b" not in shown and shown.count("\n") == 2
    assert pd.requests[0][1].failing_only
    assert pdctl.json("task", "list")[0]["last_error"] == "no\nroute\x1b[2J"


@pytest.mark.parametrize(
    ("told", "health", "exit_code"),
    [("healthy", "healthy", 0), ("degraded", "degraded", 1), ("unavailable", "unavailable", 4), ("", "unknown", 1)],
)
def test_cluster_status(pd: Any, pdctl: Any, told: str, health: str, exit_code: int) -> None:
    """The placement driver's word and reasons are printed; an earlier one, which says none, is not taken for healthy."""
    reasons = ["range server rs2 is dead", "failing: 1 task"] if told in ("degraded", "unavailable") else []
    pd.answers["describe_cluster"] = _cluster(health=told, reasons=reasons, failing_task_count=len(reasons))
    result = pdctl("cluster", "status")
    assert result.exit_code == exit_code
    assert f"health    {health}\n" in result.stdout and all(f"- {each}\n" in result.stdout for each in reasons)
    as_json = pdctl("cluster", "status", "-o", "json")
    assert as_json.exit_code == exit_code and json.loads(as_json.stdout)["health"] == health
    assert told == "" or json.loads(as_json.stdout)["reasons"] == reasons


def test_tables_of_a_pipe_are_aligned_and_whole(pd: Any, pdctl: Any) -> None:
    """Without a terminal there is no colour, no box and no cut, however long a name is."""
    long = "x" * 200
    pd.answers["list_streams"] = pd_pb2.ListStreamsResponse(streams=[_stream(long), _stream("b")])
    heading, first, second = pdctl("stream", "list").stdout.splitlines()
    assert long in first and "\x1b" not in first and "│" not in first
    assert heading.index("RANGES") == 202 and first[202] == "2" and second[202] == "2"


def test_a_list_says_how_to_see_the_end(pd: Any, pdctl: Any) -> None:
    """On stderr, where a stream may have an open range; not to programs. It asks nothing of the range servers."""
    hint = "SEALED END is without the records of open ranges: `pdctl stream ls --long` has END\n"
    pd.answers["list_streams"] = pd_pb2.ListStreamsResponse(streams=[_stream()])
    assert pdctl("stream", "list").stderr == hint
    assert {name for name, _ in pd.requests} == {"list_streams"}
    assert pdctl("stream", "list", "-o", "json").stderr == ""
    never_opened = _stream()
    never_opened.epoch = 0
    pd.answers["list_streams"] = pd_pb2.ListStreamsResponse(streams=[never_opened])
    assert pdctl("stream", "list").stderr == ""


def test_an_empty_list(pd: Any, pdctl: Any) -> None:
    """Nothing found is a sentence for people, on stderr, and an empty list for programs."""
    pd.answers["list_streams"] = pd_pb2.ListStreamsResponse()
    result = pdctl("stream", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "there are no streams\n")
    assert pdctl.json("stream", "list") == []


def test_a_newer_peers_enum_is_shown_as_its_number(pd: Any, pdctl: Any) -> None:
    """A state this version has no word for is no reason to fail."""
    server = _server("rs1")
    server.health = 77  # type: ignore[assignment]
    pd.answers["list_servers"] = pd_pb2.ListServersResponse(servers=[server])
    assert pdctl.json("server", "list")[0]["health"] == "77"


def test_a_failing_tier_is_shown_with_those_it_fails_for(pd: Any, pdctl: Any) -> None:
    """Who has which error is shown, once for all who have the same; earlier placement drivers check nothing."""
    pd.answers["describe_cluster"] = _cluster(tier_url="s3://b", health="degraded", reasons=["the tier fails for pd1"])
    denied = "ACCESS_DENIED: no"
    checks = [
        tier_pb2.TierCheck(name="pd1", placement_driver=True, error=denied),
        tier_pb2.TierCheck(name="rs1"),
        tier_pb2.TierCheck(name="rs2", error=denied),
    ]
    pd.answers["describe_tier"] = tier_pb2.DescribeTierResponse(checks=checks)
    result = pdctl("cluster", "status")
    assert result.exit_code == 1 and "health    degraded\n" in result.stdout
    assert f"fails for pd1, rs2: {denied}\n" in result.stdout
    shown = json.loads(pdctl("cluster", "status", "-o", "json").stdout)
    assert shown["tier_checks"][2] == {"name": "rs2", "kind": "range-server", "error": denied}
    pd.answers["describe_tier"] = UnsupportedVersion("no such call")
    assert "fails for pd1, rs2" not in pdctl("cluster", "status").stdout
