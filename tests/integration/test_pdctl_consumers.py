"""pdctl on a real cluster with brokers: records into topics and out of them, groups, checkpoints, tables, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local.processes import Cluster
from tests.integration.helpers.pdctl_command import COMMAND, Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def pdctl(broker_cluster: Cluster) -> Pdctl:
    """pdctl on the cluster with brokers that the tests of a worker share."""
    return Pdctl(broker_cluster)


def lines(pdctl: Pdctl, *arguments: str) -> list[Any]:
    """The objects that a command prints, one per line."""
    return [json.loads(line) for line in pdctl.ok(*arguments, "-o", "json").splitlines()]


def started(pdctl: Pdctl, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that runs beside the test."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *arguments], env=pdctl.environment, **pipes)  # type: ignore[call-overload,no-any-return]


def test_records_in_and_out(pdctl: Pdctl, tmp_path: Path) -> None:
    """All lines come back once, those of a key in order over a split; cuts bound what is read."""
    pdctl.ok("topic", "create", "flights", "--shards", "2")
    first = "".join(f"{number % 7}:{number}\n" for number in range(2_000)).encode()
    done = json.loads(pdctl.ok("topic", "produce", "flights", "--key-separator", ":", "-o", "json", input=first))
    assert done["count"] == sum(each["count"] for each in done["shards"].values()) == 2_000
    cut = tmp_path / "cut.json"
    cut.write_text(pdctl.ok("topic", "cut", "flights"))
    pdctl.ok("shard", "split", "flights", "0")
    second = "".join(f"{number % 7}:{number}\n" for number in range(2_000, 3_000)).encode()
    assert pdctl.ok("topic", "produce", "flights", "--key-separator", ":", input=second).startswith(
        "produced 1000 records"
    )
    found = lines(pdctl, "topic", "consume", "flights")
    assert sorted(int(each["value"]) for each in found) == list(range(3_000))
    for key in range(7):
        values = [int(each["value"]) for each in found if each["key"] == str(key)]
        assert values == sorted(values)
    before = lines(pdctl, "topic", "consume", "flights", "--to-cut", str(cut))
    behind = lines(pdctl, "topic", "consume", "flights", "--from", str(cut))
    assert sorted(int(each["value"]) for each in before) == list(range(2_000))
    assert sorted(int(each["value"]) for each in behind) == list(range(2_000, 3_000))
    assert len(pdctl.ok("topic", "consume", "flights", "--count", "5", "-o", "raw").splitlines()) == 5
    assert len(pdctl.ok("topic", "consume", "flights", "--from", "2001-01-01T00:00Z").splitlines()) == 3_000
    assert pdctl.ok("topic", "consume", "flights", "--from", "latest") == ""


def test_a_follower_until_ctrl_c(pdctl: Pdctl) -> None:
    """It prints what is produced meanwhile; Ctrl-C ends it with 130, quietly; a waiting producer says what is acked."""
    pdctl.ok("topic", "create", "followed", "--shards", "2")
    with (
        started(pdctl, "topic", "produce", "followed") as producer,
        started(pdctl, "topic", "consume", "followed", "-f", "-o", "raw") as follower,
    ):
        assert producer.stdin is not None and follower.stdout is not None
        for text in (b"one\n", b"two\n"):
            producer.stdin.write(text)
            producer.stdin.flush()
            assert follower.stdout.readline() == text
        for process in (follower, producer):  # the ack of what the follower printed may be on its way still
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert process.stderr is not None
            said = process.stderr.read()
            assert (b"pdctl: interrupted: 2 records are acked" in said) if process is producer else (said == b"")
    assert sorted(pdctl.ok("topic", "consume", "followed", "-o", "raw").splitlines()) == ["one", "two"]


@pytest.mark.long
def test_a_group_goes_on_where_it_was(pdctl: Pdctl, tmp_path: Path) -> None:
    """A count, Ctrl-C and a silence each commit what was printed; lag, reset to all places, checkpoints and deletion."""
    pdctl.ok("topic", "create", "consumed", "--shards", "3")
    pdctl.ok("topic", "produce", "consumed", input="".join(f"{each}\n" for each in range(100)).encode())
    consume = ["topic", "consume", "consumed", "--group", "consumers", "-o", "raw"]
    seen = pdctl.ok(*consume, "--count", "30").splitlines()
    assert len(seen) == 30
    lag = pdctl.json("group", "lag", "consumers")
    assert sum(each["records"] for each in lag) == 70 and max(each["seconds"] for each in lag) > 0
    with started(pdctl, *consume) as member:
        assert member.stdout is not None and member.stderr is not None
        seen += [member.stdout.readline().decode().rstrip() for _ in range(70)]
        assert "consumers" in [each["name"] for each in pdctl.json("group", "list") if each["members"] == 1]
        assert "pdctl group show" in pdctl.fails(5, "group", "delete", "consumers", "--yes")
        member.send_signal(signal.SIGINT)
        assert (member.wait(20), member.stderr.read()) == (130, b"")
    assert sorted(map(int, seen)) == list(range(100))
    assert sum(each["records"] for each in pdctl.json("group", "lag", "consumers")) == 0
    assert pdctl.ok(*consume, "--idle", "500ms") == ""

    tail = tmp_path / "tail.json"
    tail.write_text(pdctl.ok("topic", "cut", "consumed"))
    made = pdctl.json("checkpoint", "create", "consumers", "done")
    assert sum(each["offset"] for each in made["positions"]) == 100
    assert pdctl.json("checkpoint", "show", "consumers", "done") == made
    assert pdctl.json("checkpoint", "list", "consumers") == [{"name": "done", "state": "complete"}]
    for place, left in (
        ("earliest", 100), ("checkpoint:done", 0), ("2001-01-01T00:00Z", 100), (str(tail), 0), ("earliest", 100), ("latest", 0),
    ):  # fmt: skip
        only = [] if place.startswith("checkpoint:") else ["--topic", "consumed"]
        pdctl.json("group", "reset", "consumers", "--to", place, *only, "--yes")
        assert sum(each["records"] for each in pdctl.json("group", "lag", "consumers")) == left, place
    shown = pdctl.json("group", "show", "consumers")
    assert (shown["topics"], shown["members"], shown["checkpoints"]) == (["default/consumed"], [], ["done"])
    assert sum(each["offset"] for each in shown["shards"]) == 100
    assert pdctl.json("checkpoint", "delete", "consumers", "done", "--yes")["deleted"]
    assert "pdctl checkpoint list" in pdctl.fails(3, "checkpoint", "delete", "consumers", "done", "--yes")
    pdctl.json("group", "unsubscribe", "consumers", "consumed", "--yes")
    assert pdctl.json("group", "delete", "consumers", "--yes") == {"group": "consumers", "deleted": True}
    for verb in (["group", "show"], ["group", "lag"], ["checkpoint", "list"]):
        assert "pdctl group list" in pdctl.fails(3, *verb, "consumers")


@pytest.mark.long
def test_the_rows_of_a_table(pdctl: Pdctl) -> None:
    """Conditional changes, scans, a watch until Ctrl-C, and what is not there."""
    made = pdctl.json("table", "create", "counts", "--partitions", "2", "--tag", "a=b")
    assert (made["name"], made["partition_count"], made["tags"]) == ("default/counts", 2, {"a": "b"})
    assert "default/counts" in [each["name"] for each in pdctl.json("table", "list")]
    assert pdctl.json("table", "show", "counts") == made
    version = pdctl.json("table", "put", "counts", "UA", "1", "--if-absent")["version"]
    pdctl.fails(5, "table", "put", "counts", "UA", "2", "--if-absent")
    later = pdctl.json("table", "put", "counts", "UA", "2", "--if-version", str(version))["version"]
    assert later > version
    pdctl.fails(5, "table", "delete", "counts", "UA", "--if-version", str(version))
    pdctl.ok("table", "put", "counts", "AA", input=b"from\xffpipe")
    pdctl.ok("table", "put", "counts", "x", "1", "--family", "f")
    run = pdctl("table", "get", "counts", "UA", "nobody", "AA", "-o", "raw")
    assert (run.returncode, run.stdout) == (3, b"2\nfrom\xffpipe\n") and b"no row with key 'nobody'" in run.stderr
    rows = lines(pdctl, "table", "scan", "counts", "--all-families")
    assert [(each["family"], each["key"]) for each in rows] == [(None, "AA"), (None, "UA"), ("f", "x")]
    assert [each["key"] for each in lines(pdctl, "table", "scan", "counts", "--prefix", "U")] == ["UA"]
    assert [each["key"] for each in lines(pdctl, "table", "scan", "counts", "--family", "f", "--stale")] == ["x"]
    with started(pdctl, "table", "watch", "counts", "--with-rows", "--prefix", "U", "-o", "json") as watch:
        assert watch.stdout is not None and watch.stderr is not None
        assert json.loads(watch.stdout.readline())["value"] == "2"
        assert pdctl.json("table", "delete", "counts", "UA")["removed"]
        assert json.loads(watch.stdout.readline())["value"] is None
        watch.send_signal(signal.SIGINT)
        assert (watch.wait(20), watch.stdout.read(), watch.stderr.read()) == (130, b"", b"")
    assert not pdctl.json("table", "delete", "counts", "UA")["removed"]
    assert pdctl.json("table", "drop", "counts", "--yes") == {"table": "default/counts", "deleted": True}
    for verb in (["table", "show", "counts"], ["table", "get", "counts", "UA"], ["table", "scan", "counts"]):
        pdctl.fails(3, *verb)


def test_brokers_with_what_they_own(pdctl: Pdctl) -> None:
    """Each coordinator journal and each current shard is counted once."""
    pdctl.ok("topic", "create", "owned", "--shards", "5")

    def counts() -> tuple[int, int]:
        found = pdctl.json("broker", "list")
        return sum(each["shards"] for each in found), sum(each["journals"] for each in found)

    current = sum(each["shard_count"] for each in pdctl.json("topic", "list"))
    current += sum(each["partition_count"] for each in pdctl.json("table", "list"))
    eventually(lambda: counts() == (current, 16), f"{counts()} are counted, not {current}", 20)


def test_a_shard_moves_to_a_broker_by_name(pdctl: Pdctl) -> None:
    """Records go on in it, and both brokers name their doors."""
    pdctl.ok("topic", "create", "moved")
    names = sorted(each["name"] for each in pdctl.json("broker", "list") if each["state"] == "alive")
    assert all(each["doors"]["rest"] for each in pdctl.json("broker", "list") if each["state"] == "alive")
    for name in (*names, names[0]):
        pdctl.ok("topic", "produce", "moved", name, "--key", "k")
        moved = pdctl.json("shard", "move", "moved", "0", name)
        assert (moved["shard_id"], moved["owner"]["broker"], moved["owner"]["alive"]) == (0, name, True)
    pdctl.ok("topic", "produce", "moved", "last", "--key", "k")
    assert pdctl.json("topic", "cut", "moved")["offsets"] == {"0": len(names) + 2}
    assert "is not alive" in pdctl.fails(5, "shard", "move", "moved", "0", "nobody")
    pdctl.fails(3, "shard", "move", "moved", "7", names[0])


def test_what_cannot_be_done_says_so(pdctl: Pdctl) -> None:
    """Unknown topics, groups, shards and tables are 3, the other kind of topic 5: each one line."""
    pdctl.ok("topic", "create", "there")
    pdctl.ok("table", "create", "rows")
    pdctl.fails(3, "topic", "produce", "nowhere", "v")
    pdctl.fails(3, "topic", "consume", "nowhere")
    pdctl.fails(3, "group", "reset", "nobody", "--to", "latest", "--yes")
    pdctl.fails(3, "topic", "consume", "nowhere", "--group", "g")
    assert "(0 records are acked)" in pdctl.fails(3, "topic", "produce", "there", "v", "--shard", "9")
    pdctl.fails(5, "topic", "produce", "rows", "v")
    pdctl.fails(5, "topic", "consume", "rows")
    pdctl.fails(5, "topic", "consume", "rows", "--group", "g")
    pdctl.fails(5, "table", "get", "there", "k")
    pdctl.fails(2, "table", "drop", "rows")
    assert pdctl.json("table", "drop", "rows", "--yes")["deleted"]


def test_an_import_is_exported_byte_by_byte(pdctl: Pdctl, tmp_path: Path) -> None:
    """A file of lines with carriage returns, some of them in front of a line feed: into a stream and out of it."""
    source = tmp_path / "lines.csv"
    source.write_bytes(b"a,b\r\n1,2\r\n\r\n3\r,4\n")
    pdctl.ok("stream", "create", "imported")
    pdctl.ok("stream", "append", "imported", "--file", str(source))
    assert pdctl("stream", "read", "imported").stdout == source.read_bytes()
    pdctl.ok("topic", "create", "imported")
    pdctl.ok("topic", "produce", "imported", "--file", str(source), "--crlf")
    assert pdctl("topic", "consume", "imported", "-o", "raw").stdout == source.read_bytes().replace(b"\r\n", b"\n")
