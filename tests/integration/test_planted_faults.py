"""Faults planted in a real cluster are found and named by locate, verify, stream show, cluster status and doctor."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ClusterFactory = Callable[..., Cluster]
RECORDS = 300
ENVIRONMENT = {"RANGELOG_SERVER_SCRUB_BYTES_PER_S": "0"}
"""The scrub must not be faster than the test."""
NOTICED = {"RANGELOG_PD_SERVER_SUSPECT_MS": "1500", "RANGELOG_PD_SERVER_DEAD_MS": "5000"}
"""Production's: a test waits until a killed server counts as dead; its writers stay patient."""


def value(number: int) -> bytes:
    """A record that is found in a file."""
    return b"record number %06d; " % number * 5


async def write(cluster: Cluster, stream: str, *, tiered: bool = True, seal: bool = True) -> None:
    """A stream of RECORDS records, in small batches."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream(stream, StreamConfig(tiered=tiered, hot_retention_seconds=math.inf))
        async with client.writer(stream) as writer:
            for first in range(0, RECORDS, 20):
                await writer.append_batch([value(number) for number in range(first, first + 20)])
            # Two of three are enough for an ack: the third one gets what is under way only while the writer is connected.
            await asyncio.to_thread(
                eventually, lambda: all_hold(cluster, stream), "not all replicas got all records", 30
            )
        if seal:
            await client.seal_stream(stream)


def all_hold(cluster: Cluster, stream: str) -> bool:
    """Whether all three replicas hold the last record."""
    code, located = run(Pdctl(cluster), "locate", f"{stream}@{RECORDS - 1}")
    return code == 0 and [each["holds"] for each in located["replicas"]] == [True] * 3


def make(cluster: Cluster, stream: str, **options: bool) -> None:
    """Write it, and wait until all of it is where it should be."""
    asyncio.run(write(cluster, stream, **options))


def flip(cluster: Cluster, server: str, content: bytes) -> int:
    """Flip a bit of each copy of a record in a server's log; return how many."""
    flipped = 0
    for path in sorted((cluster.directory / server / "wal").glob("wal-*.seg")):
        data = path.read_bytes()
        place = data.find(content)
        while place >= 0:
            with path.open("r+b") as file:
                file.seek(place + 7)
                file.write(bytes([data[place + 7] ^ 0x20]))
            flipped += 1
            place = data.find(content, place + 1)
    return flipped


def run(pdctl: Pdctl, *arguments: str) -> tuple[int, Any]:
    """Run with -o json; return the exit code and what was printed."""
    result = pdctl(*arguments, "-o", "json")
    return result.returncode, json.loads(result.stdout)


def is_whole(pdctl: Pdctl, stream: str) -> bool:
    """Whether the sealed range has its copies, as reported."""
    return bool(pdctl.json("stream", "show", stream)["copies"] == {"3 of 3": 1})


def stored(cluster: Cluster, key: str) -> Path:
    """The file of an object."""
    return cluster.directory / "tier" / key


def object_of(pdctl: Pdctl, stream: str) -> Any:
    """The stream's one object, once it is there."""
    eventually(lambda: pdctl.json("object", "list", stream) != [], "nothing was uploaded")
    (found,) = pdctl.json("object", "list", stream)
    return found


def test_a_whole_stream_is_proved_and_shown(cluster_factory: ClusterFactory) -> None:
    """Nothing planted: every copy and the object hold every record, and the stream says how it is."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT)
    pdctl = Pdctl(cluster)
    make(cluster, "s")
    found = object_of(pdctl, "s")
    eventually(lambda: is_whole(pdctl, "s"), "not all copies are reported", 30)
    for options in ((), ("--deep",)):
        code, report = run(pdctl, "verify", "s", "--all", *options)
        assert (code, report["ok"], report["record_count"], report["object_count"]) == (0, True, RECORDS, 1), report
        assert [each["result"] for each in report["ranges"][0]["copies"]] == ["ok"] * 3
    code, located = run(pdctl, "locate", "s@217")
    assert (code, located["holder_count"], located["object"]["key"]) == (0, 4, found["key"])
    for each in located["replicas"]:
        batch = each["batch"]
        assert batch["start_offset"] <= 217 < batch["end_offset"]
        (path,) = [
            path for path in (cluster.directory / each["server"] / "wal").glob("wal-*.seg")
            if int(path.stem.removeprefix("wal-"), 16) == batch["log_file"] or str(batch["log_file"]) in path.stem
        ]  # fmt: skip
        with path.open("rb") as file:
            file.seek(batch["log_position"])
            assert value(217) in file.read(batch["length_bytes"]), "the named bytes hold the record"
    shown = pdctl.json("stream", "show", "s")
    assert (shown["end_offset"], shown["record_count"], shown["health"]) == (RECORDS, RECORDS, "healthy")
    assert shown["hot_bytes_all_copies"] == 3 * shown["hot_bytes"] > 0 and shown["tiered_bytes"] == found["size_bytes"]
    assert shown["last_write_ms"] and shown["writer"] and shown["writer_connected"] is False


def test_objects_that_are_missing_or_damaged_are_named(cluster_factory: ClusterFactory) -> None:
    """verify and locate say which object, and where; they tell missing from damaged."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT)
    pdctl = Pdctl(cluster)
    make(cluster, "gone")
    make(cluster, "rotten")
    gone, rotten = object_of(pdctl, "gone"), object_of(pdctl, "rotten")
    stored(cluster, gone["key"]).unlink()
    content = bytearray(stored(cluster, rotten["key"]).read_bytes())
    content[len(content) // 4] ^= 0x10
    path = stored(cluster, rotten["key"])
    path.chmod(0o644)
    path.write_bytes(content)
    code, report = run(pdctl, "verify", "gone")
    assert code == 1 and report["ranges"][0]["result"] == "missing"
    assert report["ranges"][0]["objects"][0]["key"] == gone["key"]
    code, report = run(pdctl, "verify", "rotten")
    (told,) = report["ranges"][0]["objects"]
    assert code == 1 and (told["key"], told["result"], told["offset"]) == (rotten["key"], "differs", 0)
    _, located = run(pdctl, "locate", "gone@5")
    assert located["object"]["holds"] is False and located["object"]["problem"].startswith("missing")
    assert located["holder_count"] == 3
    _, located = run(pdctl, "locate", "rotten@5")
    assert located["object"]["holds"] is False and located["object"]["problem"].startswith("differs")


def test_a_damaged_log_is_named(cluster_factory: ClusterFactory) -> None:
    """A bit flipped in one server's log: a deep verification names the server and the batch."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT)
    pdctl = Pdctl(cluster)
    make(cluster, "s", tiered=False)
    eventually(lambda: is_whole(pdctl, "s"), "not all copies are reported", 30)
    assert flip(cluster, "rs2", value(137)) == 1  # while it runs: a start would find it, and have it copied again
    assert run(pdctl, "verify", "s")[0] == 0, "the headers in memory are right"
    code, report = run(pdctl, "verify", "s", "--deep")
    (row,) = report["ranges"]
    found = {each["server"]: each for each in row["copies"]}
    assert code == 1 and row["result"] == "differs", report
    assert found["rs2"]["result"] == "differs" and found["rs1"]["result"] == found["rs3"]["result"] == "ok"
    assert found["rs2"]["offset"] == 120, "the first record of the damaged batch"
    eventually(lambda: run(pdctl, "verify", "s", "--deep")[0] == 0, "the damaged copy was not made good")


def test_a_range_without_a_copy_is_named_and_never_healthy(cluster_factory: ClusterFactory) -> None:
    """A server that is gone: the cluster, the stream and each reading verb say which range lacks which copy."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT | NOTICED)
    pdctl = Pdctl(cluster)
    make(cluster, "s", tiered=False)
    eventually(lambda: is_whole(pdctl, "s"), "not all copies are reported", 30)
    eventually(lambda: run(pdctl, "cluster", "status")[1]["health"] == "healthy", "it is not healthy", 20)
    cluster.kill("rs3")
    eventually(lambda: "dead" in str(run(pdctl, "server", "list")[1]), "nobody notices", 30)
    code, status = run(pdctl, "cluster", "status")
    assert (code, status["health"], status["under_replicated_range_count"]) == (1, "degraded", 1)
    assert any("under-replicated: 1 of 1 range" in each and "s/0" in each for each in status["reasons"])
    shown = pdctl.json("stream", "show", "s")
    assert shown["health"] == "degraded" and "rs3 is dead" in shown["reasons"][0]
    code, report = run(pdctl, "verify", "s")
    assert (code, report["ranges"][0]["result"]) == (1, "unreachable")
    code, located = run(pdctl, "locate", "s", "7")
    assert (code, {each["server"]: each["holds"] for each in located["replicas"]}) == (
        0, {"rs1": True, "rs2": True, "rs3": None},
    )  # fmt: skip


def test_a_replica_with_a_wrong_end_is_named(cluster_factory: ClusterFactory) -> None:
    """One server's log lost its last records while it was down: locate does not name it as a holder, verify says where."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT)
    pdctl = Pdctl(cluster)
    make(cluster, "s", tiered=False, seal=False)
    # An open range: what the log lost is not made good before somebody looks.
    cluster.kill("rs1")
    assert flip(cluster, "rs1", value(RECORDS - 1)) == 1
    cluster.start_member("rs1")
    eventually(lambda: run(pdctl, "server", "show", "rs1")[1]["health"] == "alive", "rs1 does not come back", 30)
    code, located = run(pdctl, "locate", f"s@{RECORDS - 1}")
    holds = {each["server"]: each["holds"] for each in located["replicas"]}
    assert (code, holds) == (0, {"rs1": False, "rs2": True, "rs3": True}), located
    code, report = run(pdctl, "verify", "s", "--all")
    found = {each["server"]: each for each in report["ranges"][0]["copies"]}
    assert found["rs1"]["result"] in ("behind", "differs") and found["rs1"]["offset"] == RECORDS - 20, report
    assert found["rs2"]["result"] == found["rs3"]["result"] == "ok"


def test_five_replicas_on_three_servers_are_refused(cluster_factory: ClusterFactory) -> None:
    """The sentence says how many there are, and what to do."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT)
    said = Pdctl(cluster).fails(5, "stream", "create", "s", "--replicas", "5")
    assert "5 replicas need 5 range servers, and 3 range servers are registered" in said


def test_doctor_asks_everybody_and_names_what_is_wrong(cluster_factory: ClusterFactory) -> None:
    """A sound cluster has only notes; an open range without a writer and a server that is gone are named."""
    cluster = cluster_factory(pds=1, env=ENVIRONMENT | NOTICED)
    pdctl = Pdctl(cluster)
    make(cluster, "s", seal=False)
    code, found = run(pdctl, "doctor", "cluster")
    states = {
        each["check"]: each["state"] for each in found if each["check"] != "disks"
    }  # the machine's are as they are
    notes = {"open ranges": "note", "certificates": "note"}
    assert {check: state for check, state in states.items() if state != "ok"} == notes, found
    assert "s/0" in next(each["detail"] for each in found if each["check"] == "open ranges")
    assert code == any(each["state"] == "problem" for each in found)
    cluster.kill("rs1")
    eventually(lambda: "dead" in str(run(pdctl, "server", "list")[1]), "nobody notices", 30)
    code, found = run(pdctl, "doctor", "cluster")
    problems = {each["check"]: each["subject"] for each in found if each["state"] == "problem"}
    assert code == 1 and problems["servers"] == "rs1" and problems["copies"] == "cluster"
