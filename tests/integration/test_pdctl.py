"""pdctl as a user types it, against real clusters: every noun and verb, what goes wrong, signals and pipes."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local.processes import Cluster
from tests.integration.helpers.pdctl_command import COMMAND, Pdctl
from tests.support.leader import leader_of
from tests.support.waiting import arrives, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_S3_KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def pdctl(shared_cluster: Cluster) -> Pdctl:
    """pdctl on the cluster that the tests of this file share."""
    return Pdctl(shared_cluster)


def test_every_noun_and_verb_in_json(pdctl: Pdctl) -> None:
    """A stream's whole life by pdctl alone, each verb once, with stable keys."""
    eventually(lambda: pdctl("cluster", "status").returncode == 0, "it is not healthy", 20)
    status = pdctl.json("cluster", "status")
    assert status["health"] == "healthy" and len(status["members"]) == 3
    assert [each["name"] for each in pdctl.json("server", "list")] == ["rs1", "rs2", "rs3"]
    assert pdctl.json("server", "show", "rs2")["health"] == "alive"

    created = pdctl.json(
        "stream", "create", "life", "--hot-retention", "never", "--retention", "7d", "--range-size", "64MiB"
    )
    assert created["config"] | {"hot_retention_ms": -1, "retention_ms": 604_800_000} == created["config"]
    assert created["config"]["range_size_bytes_max"] == 64 << 20 and created["config"]["durability"] == "flushed"
    assert "life" in [each["name"] for each in pdctl.json("stream", "list", "--prefix", "li")]
    assert pdctl.json("stream", "show", "life")["stream_id"] == created["stream_id"]
    updated = pdctl.json("stream", "update", "life", "--durability", "memory")
    assert updated["config"] == created["config"] | {"durability": "memory"}

    appended = pdctl.json("stream", "append", "life", "a", "b", "c", "--key", "k", "--header", "h=v")
    assert appended == {"stream": "life", "first_offset": 0, "count": 3}
    (record,) = [
        json.loads(line) for line in pdctl.ok("stream", "read", "life", "-o", "json", "--limit", "1").splitlines()
    ]
    assert record.pop("timestamp_ms") > 0
    assert record == {"offset": 0, "key": "k", "value": "a", "headers": {"h": "v"}}
    (last,) = [json.loads(line) for line in pdctl.ok("stream", "tail", "life", "-n", "1", "-o", "json").splitlines()]
    assert (last["offset"], last["value"]) == (2, "c")

    (open_range,) = pdctl.json("range", "list", "life")
    assert (open_range["state"], open_range["end_offset"]) == ("open", None)
    assert pdctl.json("range", "seal", "life", "--yes") == {"stream": "life", "end_offset": 3}
    sealed = pdctl.json("range", "show", "life", "0")
    assert (sealed["state"], sealed["end_offset"]) == ("sealed", 3)

    eventually(lambda: pdctl.json("object", "list", "life") != [], "nothing was uploaded", 30)
    (found,) = pdctl.json("object", "list", "life")
    assert pdctl.json("object", "show", "life", str(found["object_id"])) == found
    assert (found["state"], found["start_offset"], found["end_offset"]) == ("committed", 0, 3)
    assert isinstance(pdctl.json("task", "list"), list)

    assert pdctl.json("stream", "trim", "life", "--to", "2", "--yes")["trim_offset"] == 2
    assert pdctl.json("stream", "delete", "life", "--yes") == {"stream": "life", "deleted": True}
    pdctl.fails(3, "stream", "show", "life")


def test_lines_in_and_out_are_the_same(pdctl: Pdctl, tmp_path: Path) -> None:
    """Lines of a file and of a pipe come out as they went in: empty ones, UTF-8, bytes that are no text."""
    lines = [b"%d" % number for number in range(5000)] + [b"", "grüße 🙂".encode(), b"\xff\x00\xfe", b"x" * 1_000_000]
    data = b"".join(line + b"\n" for line in lines)
    source = tmp_path / "lines"
    source.write_bytes(data)
    pdctl.ok("stream", "create", "lines")
    assert pdctl.ok("stream", "append", "lines", "--file", str(source)) == "appended 5004 records from offset 0\n"
    assert pdctl.ok("stream", "append", "lines", input=b"no newline at the end").startswith(
        "appended 1 record from offset 5004"
    )
    run = pdctl("stream", "read", "lines")
    assert run.returncode == 0 and run.stdout == data + b"no newline at the end\n"
    assert pdctl.ok("stream", "read", "lines", "--start", "10", "--end", "12") == "10\n11\n"
    as_json = pdctl.ok("stream", "read", "lines", "--start", "5002", "--limit", "1", "-o", "json")
    assert json.loads(as_json)["value"] == {"base64": "/wD+"}
    assert pdctl.ok("stream", "read", "lines", "--start", "latest") == ""
    assert pdctl.ok("stream", "read", "lines", "--start", "2001-01-01T00:00Z", "--limit", "2") == "0\n1\n"
    assert pdctl.ok("stream", "append", "lines", input=b"") == "nothing to append\n"


def test_a_line_over_the_limit(pdctl: Pdctl) -> None:
    """A record that is too large is refused with its line; what was acked before it is said, and is there."""
    pdctl.ok("stream", "create", "large")
    said = pdctl.fails(1, "stream", "append", "large", input=b"a\nb\n" + b"x" * 3_000_000 + b"\nc\n")
    assert "line 3" in said and "acked before: 2 records from offset 0" in said
    assert pdctl.ok("stream", "read", "large") == "a\nb\n"


def test_what_cannot_be_done_says_so(pdctl: Pdctl) -> None:
    """Unknown stream 3, exists 5, bad name 2, beyond the end and trimmed 1: each one line."""
    pdctl.ok("stream", "create", "there")
    assert "exists" in pdctl.fails(5, "stream", "create", "there")
    assert "bad stream name" in pdctl.fails(2, "stream", "create", "no such/name")
    for verb in (["stream", "show"], ["stream", "read"], ["stream", "tail"], ["range", "list"], ["object", "list"]):
        assert "nowhere" in pdctl.fails(3, *verb, "nowhere")
    for verb in (["stream", "delete", "--yes"], ["range", "seal", "--yes"], ["stream", "trim", "--to", "1", "--yes"]):
        assert "nowhere" in pdctl.fails(3, *verb, "nowhere")
    assert "nowhere" in pdctl.fails(3, "stream", "append", "nowhere", "v")
    assert "nowhere" in pdctl.fails(3, "stream", "update", "nowhere", "--retention", "1d")
    pdctl.fails(3, "server", "show", "rs9")
    pdctl.fails(3, "range", "show", "there", "0")
    pdctl.fails(3, "object", "show", "there", "1")
    pdctl.ok("stream", "append", "there", "a", "b", "c")
    assert "beyond the end" in pdctl.fails(1, "stream", "read", "there", "--start", "9")
    pdctl.ok("range", "seal", "there", "--yes")
    pdctl.ok("stream", "trim", "there", "--to", "2", "--yes")
    assert "starts at 2" in pdctl.fails(1, "stream", "read", "there", "--start", "0")
    assert pdctl.ok("stream", "read", "there") == "c\n"
    assert pdctl.ok("stream", "tail", "there", "-n", "50") == "c\n"
    pdctl.fails(2, "stream", "delete", "there")
    assert pdctl.json("stream", "show", "there")["trim_offset"] == 2


@pytest.mark.parametrize(
    "answered_s_max",
    [
        pytest.param(math.inf, marks=pytest.mark.long, id="promises"),
        pytest.param(15.0, marks=pytest.mark.measure, id="in-time"),
    ],
)
def test_nobody_answers(answered_s_max: float) -> None:
    """A placement driver that is not there is exit 4 and one line. Measured: in about the time that was given."""
    pdctl = Pdctl()
    verbs = (
        "cluster status, stream list, stream read x, stream tail x, stream append x v, range seal x --yes, topic produce x v, "
        "topic consume x, group list, checkpoint create g x, table list, table get x k"
    )
    for verb in verbs.split(", "):
        start_s = time.monotonic()
        assert "127.0.0.1:1" in pdctl.fails(4, "--pd", "127.0.0.1:1", "--timeout", "1", *verb.split())
        assert time.monotonic() - start_s < answered_s_max, verb
    pdctl.fails(2, "cluster", "status")


@pytest.fixture
def follower(pdctl: Pdctl) -> Iterator[subprocess.Popen[bytes]]:
    """`pdctl stream tail followed -f`."""
    pdctl.ok("stream", "create", "followed")
    pdctl.ok("stream", "append", "followed", "one", "two", "three")
    command = [*COMMAND, "stream", "tail", "followed", "-n", "2", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=pdctl.environment) as process:
        yield process
        process.kill()


def test_tail_follows_until_ctrl_c(pdctl: Pdctl, follower: subprocess.Popen[bytes]) -> None:
    """The last two, then each new record as it comes; Ctrl-C ends it quietly with 130."""
    assert follower.stdout is not None and follower.stderr is not None
    assert [follower.stdout.readline() for _ in range(2)] == [b"two\n", b"three\n"]
    pdctl.ok("stream", "append", "followed", "four")
    assert follower.stdout.readline() == b"four\n"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(10) == 130
    assert (follower.stdout.read(), follower.stderr.read()) == (b"", b"")


@pytest.mark.long
def test_append_waiting_for_input_ends_on_ctrl_c(pdctl: Pdctl) -> None:
    """A line is appended when it comes, not when the input ends; Ctrl-C keeps it and says so."""
    pdctl.ok("stream", "create", "piped")
    command = [*COMMAND, "stream", "append", "piped"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=pdctl.environment, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(b"first\n")
        process.stdin.flush()
        arrives(lambda: pdctl.ok("stream", "read", "piped"), "first\n", "the line was held back", 20)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read().startswith(b"pdctl: interrupted: 1 record is acked")


def test_append_does_not_end_a_writer_unasked(pdctl: Pdctl) -> None:
    """A line on the command line must not end a service that writes the stream, also before its first append."""
    pdctl.ok("stream", "create", "served")
    command = [*COMMAND, "stream", "append", "served"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=pdctl.environment, **pipes) as writer:  # type: ignore[call-overload]
        eventually(lambda: pdctl.json("stream", "show", "served")["writer_connected"], "the writer is not there", 20)
        assert "--take-over" in pdctl.fails(5, "stream", "append", "served", "intruder")
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        arrives(lambda: pdctl.ok("stream", "read", "served"), "first\n", "the line was held back", 20)
        assert "--take-over" in pdctl.fails(5, "stream", "append", "served", "intruder")
        taken = pdctl("stream", "append", "served", "second", "--take-over")
        assert (
            taken.returncode == 0 and b"taking served over from" in taken.stderr and b"which is fenced" in taken.stderr
        )
        writer.stdin.write(b"third\n")
        writer.stdin.close()
        assert writer.wait(20) == 5
        assert b"fenced" in writer.stderr.read()
    assert pdctl.ok("stream", "append", "served", "fourth").startswith("appended")
    assert pdctl.ok("stream", "read", "served") == "first\nsecond\nfourth\n"


def test_a_reader_that_goes_away_is_no_error(pdctl: Pdctl) -> None:
    """`pdctl stream read … | head -1` ends without a word."""
    pdctl.ok("stream", "create", "much")
    pdctl.ok("stream", "append", "much", input=b"line\n" * 50_000)
    command = [*COMMAND, "stream", "read", "much"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=pdctl.environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def _on_terminal(environment: dict[str, str], arguments: list[str], typed: bytes = b"") -> tuple[int, str]:
    """Run with a terminal for all three streams, 60 columns wide; return exit code and what the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*COMMAND, *arguments], environment | {"COLUMNS": "60"})
    shown = bytearray()
    try:
        os.write(terminal, typed)
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            if select.select([terminal], [], [], 0.2)[0]:
                data = b""
                with suppress(OSError):
                    data = os.read(terminal, 65536)
                if not data:
                    break
                shown += data
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), shown.decode()
    finally:
        os.close(terminal)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_on_a_terminal(pdctl: Pdctl) -> None:
    """Tables are whole on a narrow terminal; deleting asks for the name; NO_COLOR takes the colours away."""
    name = "a-long-name-" + "x" * 60
    pdctl.ok("stream", "create", name)
    code, shown = _on_terminal(pdctl.environment | {"NO_COLOR": "1"}, ["stream", "list", "--prefix", "a-long"])
    assert code == 0 and name in shown and "RETENTION" in shown
    assert not any(f"\x1b[{colour}m" in shown for colour in range(30, 50))
    code, shown = _on_terminal(pdctl.environment, ["stream", "delete", name], b"y\n")
    assert code == 1 and "nothing was done" in shown
    assert pdctl.json("stream", "show", name)["name"] == name
    code, shown = _on_terminal(pdctl.environment, ["stream", "delete", name], name.encode() + b"\n")
    assert code == 0 and "is deleted" in shown
    pdctl.fails(3, "stream", "show", name)


@pytest.mark.hasty
def test_status_of_a_cluster_that_loses_members(cluster: Cluster) -> None:
    """Healthy 0; a range server or a follower down 1, and who; no majority 4; appends with one server left time out as 4."""
    pdctl = Pdctl(cluster)
    eventually(lambda: pdctl("cluster", "status").returncode == 0, "it is not healthy", 20)
    pdctl.ok("stream", "create", "s")
    pdctl.ok("stream", "append", "s", "acked")
    cluster.kill("rs3")
    eventually(lambda: pdctl("cluster", "status").returncode == 1, "rs3 is not missed", 20)
    health = {each["name"]: each["health"] for each in pdctl.json("server", "list")}
    assert health["rs1"] == "alive" and health["rs3"] in ("suspect", "dead")
    pdctl.ok("stream", "append", "s", "with two servers")
    cluster.kill("rs2")
    eventually(lambda: pdctl.json("server", "show", "rs2")["health"] == "dead", "rs2 is not missed", 20)
    pdctl.fails(4, "--timeout", "3", "stream", "append", "s", "with one server")
    for name in ("rs2", "rs3"):
        cluster.start_member(name)
    eventually(lambda: pdctl("cluster", "status").returncode == 0, "it does not recover", 30)
    assert pdctl.ok("stream", "read", "s").startswith("acked\nwith two servers\n")

    leader = leader_of(cluster)
    members = json.loads(pdctl("cluster", "status", "-o", "json").stdout)["members"]
    followers = [each["name"] for each in members if each["name"] != leader]
    cluster.kill(followers[0])

    def missed() -> bool:
        run = pdctl("cluster", "status", "-o", "json")
        if not run.stdout:
            return False  # during an election
        reachable = {each["name"]: each["reachable"] for each in json.loads(run.stdout)["members"]}
        return run.returncode == 1 and not reachable[followers[0]]

    eventually(missed, f"{followers[0]} is not missed", 20)
    cluster.kill(followers[1])
    eventually(lambda: pdctl("--timeout", "2", "cluster", "status").returncode == 4, "a minority leads", 30)


def test_an_object_store_that_does_not_answer_is_seen(cluster_factory: Any) -> None:
    """Uploads that fail are tried again and shown with their error; the status is degraded; every record stays readable."""
    store = "s3://bucket/prefix?endpoint=http://127.0.0.1:1"
    pdctl = Pdctl(cluster_factory(pds=1, range_servers=2, tier_url=store, env=_S3_KEYS))
    pdctl.ok("stream", "create", "kept", "--hot-retention", "0s")
    pdctl.ok("stream", "append", "kept", "a", "b")
    pdctl.ok("range", "seal", "kept", "--yes")

    def failing() -> list[Any]:
        return [each for each in pdctl.json("task", "list", "--failing") if each["attempts"] > 1 and each["last_error"]]

    eventually(lambda: failing() != [], "no failing task is shown")
    task = failing()[0]
    assert task["kind"].startswith("upload") and (task["stream"], task["range_index"]) == ("kept", 0)
    assert "\n" not in task["last_error"] and "Traceback" not in task["last_error"]
    run = pdctl("cluster", "status")
    assert run.returncode == 1 and "pdctl task list --failing" in run.stdout.decode()
    assert pdctl.json("object", "list", "kept") == []
    assert pdctl.ok("stream", "read", "kept") == "a\nb\n"
