"""The jobs on a real cluster: what they find, write and go on with; and what they say of bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rangelog.sync
from rangelog import TopicConfig
from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import StreamNotFound, TopicExists
from rangelog_jobs.audit import audit_streams
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.export import ExportOptions, export_stream
from rangelog_jobs.export_manifest import FILE_NAME
from rangelog_jobs.replay import ReplayOptions, replay_stream
from rangelog_jobs.report import report_streams
from tests.spark.conftest import START_MS, Filled, Streams
from tests.spark.job_fixtures import COUNT, mixed, run
from tests.support.waiting import arrives, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

__all__ = ["mixed", "run"]


def values_of(client: rangelog.sync.Client, name: str) -> list[bytes]:
    """The values of a stream."""
    return [record.value for record in client.reader(name)]


# ---- replay


@pytest.fixture
def clicks(streams: Streams, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A stream of 1,000 records and an empty one, named after the test."""
    name = request.node.name.replace("_", "-").split("[")[0][:60]
    streams.fill(name, 1_000)
    streams.client.create_stream(f"{name}-to")
    yield name, f"{name}-to"
    for each in (name, f"{name}-to"):
        streams.client.delete_stream(each)


def test_a_replay_goes_on_where_it_was(
    run: Any, client: rangelog.sync.Client, clicks: tuple[str, str], tmp_path: Path
) -> None:
    """Each record once, over runs and new records, also when the checkpoint lost a commit."""
    source, target = clicks
    argv = ("replay", source, "--to", target, "--checkpoint", str(tmp_path / "c"), "--batch-records", "300")
    code, out, err = run(*argv)
    assert (code, out.strip()) == (0, f"1,000 records of {source} read in 4 micro-batches"), err
    assert values_of(client, target) == values_of(client, source)
    with client.writer(source) as writer:
        writer.append_batch([b"more %d" % number for number in range(10)])
    commits = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    assert run(*argv)[0] == 0
    assert values_of(client, target) == values_of(client, source)


def test_a_replay_through_sql(
    address: ClusterAddress, spark: SparkSession, client: rangelog.sync.Client, clicks: tuple[str, str], tmp_path: Path
) -> None:
    """The query chooses records and makes values."""
    source, target = clicks
    sql = "SELECT key, concat('<', CAST(value AS STRING), '>') AS value, timestamp FROM records WHERE key = 'key-1'"
    replay_stream(spark, address, ReplayOptions(source, target, str(tmp_path / "c"), sql))
    wanted = [(r.key, b"<" + r.value + b">", r.timestamp_ms) for r in client.reader(source) if r.key == b"key-1"]
    assert [(r.key, r.value, r.timestamp_ms) for r in client.reader(target)] == wanted
    assert wanted


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nothing FROM records", "nothing"),
        ("SELECT FROM WHERE", "--sql: Spark does not accept this"),
        ("SELECT key FROM records", "the frame has no column 'value'"),
        ("SELECT value, 1 AS amount FROM records", "column 'amount' cannot be written"),
        ("SELECT 'a' AS value", "the query does not read the view 'records'"),
        ("SELECT value FROM elsewhere", "elsewhere"),
    ],
)
def test_sql_that_does_not_fit(run: Any, clicks: tuple[str, str], tmp_path: Path, sql: str, said: str) -> None:
    """It is refused in one line, before a checkpoint is made."""
    source, target = clicks
    code, _, err = run("replay", source, "--to", target, "--checkpoint", str(tmp_path / "c"), "--sql", sql)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1, err
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_of_another_replay(run: Any, streams: Streams, clicks: tuple[str, str], tmp_path: Path) -> None:
    """With another source, or another target, it is refused: Spark itself would go on in the middle."""
    source, target = clicks
    checkpoint = str(tmp_path / "c")
    assert run("replay", source, "--to", target, "--checkpoint", checkpoint)[0] == 0
    streams.fill("another-source", 10)
    streams.client.create_stream("another-target")
    for argv, said in (
        (("another-source", "--to", target), f"with from '{source}' in place of 'another-source'"),
        ((source, "--to", "another-target"), f"with to '{target}' in place of 'another-target'"),
    ):
        code, _, err = run("replay", *argv, "--checkpoint", checkpoint)
        assert (code, said in err) == (2, True), err
    Path(checkpoint, "_rangelog_job.json").unlink()  # a checkpoint of a query that is no job's: the source knows it
    code, _, err = run("replay", "another-source", "--to", target, "--checkpoint", checkpoint)
    assert (code, f"the checkpoint is one of stream '{source}'" in err) == (2, True), err
    assert values_of(streams.client, "another-target") == []


def test_a_replay_into_a_topic(run: Any, client: rangelog.sync.Client, clicks: tuple[str, str], tmp_path: Path) -> None:
    """Each record once, those of one key in order; a topic that is not there is named, one that was made anew is another."""
    source = clicks[0]
    argv = ("replay", source, "--to", f"jobs/{source}", "--checkpoint", str(tmp_path / "c"), "--batch-records", "400")
    code, _, err = run(*argv)
    assert (code, f"no topic 'jobs/{source}'" in err, len(err.splitlines())) == (1, True, 1), err
    client.topics.create_namespace("jobs")
    client.topics.create(f"jobs/{source}", TopicConfig(), shards=2, timeout_s=30)
    assert run(*argv)[0] == 0
    with client.writer(source) as writer:
        writer.append_batch([b"more %d" % number for number in range(10)])
    assert run(*argv)[0] == 0
    found = [(record.key, record.value) for record in client.topic_reader(f"jobs/{source}")]
    wanted = [(record.key, record.value) for record in client.reader(source)]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    keys = {key for key, _ in wanted if key is not None}
    assert keys and all([r for r in found if r[0] == key] == [r for r in wanted if r[0] == key] for key in keys)
    client.topics.delete(f"jobs/{source}", force=True)

    def created_anew() -> bool:
        with suppress(TopicExists):  # it is deleted in parts
            client.topics.create(f"jobs/{source}", TopicConfig(), shards=2, timeout_s=30)
            return True
        return False

    eventually(created_anew, "the topic's name is not free")
    code, _, err = run(*argv)
    assert (code, "with to_id" in err) == (2, True), err


# ---- export


def test_an_export_runs_again(
    run: Any, spark: SparkSession, client: rangelog.sync.Client, streams: Streams, tmp_path: Path
) -> None:
    """Each record once: nothing is written twice, what is new is added, and what a run left half-written is written anew."""
    filled = streams.fill("exported", 1_000)
    folder = tmp_path / "out"
    argv = ("export", "exported", "--to", str(folder), "--by", "day")
    assert run(*argv)[:2] == (0, f"1,000 records written to {folder}: [0, 1000)\n")
    assert run(*argv)[:2] == (0, f"0 records written to {folder}: nothing is new\n")
    with client.writer("exported") as writer:
        writer.append_batch([b"more"] * 50)
    document = json.loads((folder / FILE_NAME).read_text())
    document["pending"] = {"start": 1_000, "end": 1_020, "path": "span=1000-1020", "record_count": 0, "written_ms": 0}
    (folder / FILE_NAME).write_text(json.dumps(document))
    (folder / "span=1000-1020").mkdir()
    (folder / "span=1000-1020" / "part-of-a-dead-run.parquet").write_bytes(b"half")
    (folder / f".{FILE_NAME}.crc").unlink(missing_ok=True)
    code, out, err = run(*argv)
    assert (code, out) == (0, f"50 records written to {folder}: [1000, 1020), [1020, 1050)\n"), err
    frame = spark.read.parquet(str(folder))
    rows = frame.selectExpr("offset", "unix_millis(timestamp)", "key", "value", "headers").orderBy("offset").collect()
    assert [row[0] for row in rows] == list(range(1_050))
    shown = [(offset, stamp, key and bytes(key), bytes(value)) for offset, stamp, key, value, _ in rows[:1_000]]
    assert shown == [each[:4] for each in filled.rows]
    assert {name: bytes(each) for name, each in rows[3][4].items()} == filled.rows[3][4]
    assert str(frame.orderBy("offset").first().day) == "2013-01-01"
    spans = json.loads((folder / FILE_NAME).read_text())["spans"]
    assert [(each["start"], each["end"], each["record_count"]) for each in spans] == [
        (0, 1_000, 1_000), (1_000, 1_020, 20), (1_020, 1_050, 30),
    ]  # fmt: skip


def test_an_export_of_a_part_as_csv(
    address: ClusterAddress, spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """Text as text, with its quotes and line ends; or bytes in base64; divided by key; by times."""
    streams.client.create_stream("exported-csv")
    texts = ["plain", 'a "quoted", one', "two\nlines", "", "ü"]
    with streams.client.writer("exported-csv") as writer:
        for number, text in enumerate(texts):
            writer.append(
                text.encode(), key=b"k%d" % (number % 2), headers={"h": b"v"}, timestamp=START_MS + number * 1_000
            )
    options = ExportOptions("exported-csv", str(tmp_path / "text"), format="csv", by="key", start="1")
    assert export_stream(spark, address, options).record_count == 4
    reader = spark.read.option("header", True).option("multiLine", True).option("escape", '"').option("emptyValue", "")
    rows = reader.csv(str(tmp_path / "text")).orderBy("offset").collect()
    assert [(row["offset"], row["value"] or "", row.by_key, row.headers) for row in rows] == [
        (str(number), texts[number], f"k{number % 2}", '{"h":"v"}') for number in range(1, 5)
    ]
    assert rows[0].timestamp == "2013-01-01T00:26:41.000Z"
    whole = ExportOptions(
        "exported-csv", str(tmp_path / "b"), format="csv", value_as="binary", end="2013-01-01T00:26:42Z"
    )
    assert export_stream(spark, address, whole).record_count == 2
    assert reader.csv(str(tmp_path / "b")).orderBy("offset").first().value == "cGxhaW4="


def test_an_export_that_does_not_fit(run: Any, spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Values that are no text, a folder with another export, a missing format, a bad part: one line each."""
    streams.client.create_stream("exported-odd")
    with streams.client.writer("exported-odd") as writer:
        writer.append(b"\xff\xfe")
    folder = str(tmp_path / "odd")
    code, _, err = run("export", "exported-odd", "--to", folder, "--value-as", "string")
    assert (code, "is not UTF-8 text" in err, len(err.splitlines())) == (2, True, 1), err
    assert list(Path(folder).glob("[!.]*")) == []  # nothing stays of it
    assert run("export", "exported-odd", "--to", folder)[0] == 0
    code, _, err = run("export", "exported-odd", "--to", folder, "--value-as", "string")
    assert (code, "holds an export with value_as 'binary', not 'string'" in err) == (2, True), err
    code, _, err = run("export", "exported-odd", "--to", str(tmp_path / "delta"), "--format", "delta")
    assert (code, "--packages io.delta:delta-spark_4.3_2.13:VERSION" in err) == (1, True), err
    for more, said in (
        (("--start", "7"), "offset 7 is beyond the end"),
        (("--start", "soon"), "option start is 'earliest', an offset, or a time"),
        (("--end", "0", "--start", "1"), "start 1 is beyond end 0"),
    ):
        code, _, err = run("export", "exported-odd", "--to", str(tmp_path / "part"), *more)
        assert (code, said in err, len(err.splitlines())) == (2 if "7" not in more else 1, True, 1), err
    code, _, err = run("export", "exported-odd", "--to", "nosuch://place/x")
    assert (code, "no place that Spark can write to" in err) == (2, True), err


# ---- report


def test_a_report(run: Any, mixed: Filled, tmp_path: Path) -> None:
    """Volumes by day and key are those of the records; the page has them."""
    page = tmp_path / "report.html"
    code, out, err = run("report", "--stream", "jobs-mixed", "-o", "json", "--keys", "3", "--html", str(page))
    assert code == 0, err
    (found,) = json.loads(out)["streams"]
    assert (found["record_count"], found["end"], found["key_count"]) == (COUNT, COUNT, 7)
    sizes = [len(key or b"") + len(value) for _, _, key, value, _ in mixed.rows]
    assert found["payload_bytes"] == sum(sizes)
    assert found["oldest_ms"] == START_MS
    assert found["newest_ms"] == mixed.rows[-1][1]
    assert found["tiered_bytes"] > 0 and found["hot_bytes"] > 0
    assert found["days"] == [{"day": "2013-01-01", "record_count": COUNT, "payload_bytes": sum(sizes)}]
    by_key: Counter[bytes | None] = Counter()
    for (_, _, key, _, _), size in zip(mixed.rows, sizes, strict=True):
        by_key[key] += size
    heaviest = sorted(by_key.items(), key=lambda each: -each[1])[:3]
    assert [(each["key"], each["payload_bytes"]) for each in found["keys"]] == [
        (key.decode() if key else None, size) for key, size in heaviest
    ]
    assert "2013-01-01" in page.read_text()
    code, out, _ = run("report", "--stream", "jobs-mixed")
    assert code == 0 and "20,000 records" in out


def test_a_report_of_nothing(address: ClusterAddress, spark: SparkSession, streams: Streams) -> None:
    """An empty stream has no records, and no group is behind."""
    streams.client.create_stream("report-empty")
    report = report_streams(spark, address, stream="report-empty")
    assert [(each.record_count, each.oldest_ms, each.days) for each in report.streams] == [(0, None, [])]
    assert report.groups == [] and report.note == ""


# ---- mirror


def test_an_unknown_stream_is_named(run: Any, address: ClusterAddress, spark: SparkSession, tmp_path: Path) -> None:
    """By every job, in one line and with exit code 1."""
    checkpoint = ("--checkpoint", str(tmp_path / "c"))
    for argv in (
        ("audit", "--stream", "no-such"),
        ("audit", "--prefix", "no-such"),
        ("report", "--stream", "no-such"),
        ("export", "no-such", "--to", str(tmp_path / "o")),
        ("replay", "no-such", "--to", "no-such-either", *checkpoint),
        ("mirror", "--kafka", "127.0.0.1:9", "--topic", "t", "--to", "no-such", *checkpoint),
    ):
        code, out, err = run(*argv)
        assert (code, out, "'no-such'" in err, len(err.splitlines())) == (1, "", True, 1), (argv, err)
    with pytest.raises(StreamNotFound):
        audit_streams(spark, address, stream="no-such")


def test_options_are_checked_before_anything_is_read(run: Any, mixed: Filled, tmp_path: Path) -> None:
    """Paths that cannot be written, and values that mean nothing: exit code 2."""
    for argv, said in (
        (("audit", "--stream", "jobs-mixed", "--report", str(tmp_path / "no" / "x.html")), "there is no folder"),
        (("audit", "--stream", "jobs-mixed", "--json", str(tmp_path)), "is a folder"),
        (("report", "--stream", "jobs-mixed", "--html", "/proc/version"), "cannot be written"),
        (("report", "--stream", "jobs-mixed", "--keys", "-1"), "--keys is a number"),
        (("replay", "jobs-mixed", "--to", "jobs-mixed", "--checkpoint", "c"), "into itself"),
        (("audit", "--stream", "a b"), "bad stream name"),
    ):
        code, _, err = run(*argv)
        assert (code, said in err, len(err.splitlines())) == (2, True, 1), (argv, err)


def test_a_cluster_that_is_away(run: Any) -> None:
    """One line, after the client's limit."""
    code, _, err = run("audit", pd=f"127.0.0.1:{free_ports(1)[0]}")
    assert (code, len(err.splitlines())) == (1, 1), err
    assert "127.0.0.1" in err


# ---- the command as a program


def test_the_command_as_a_process(cluster: Cluster, mixed: Filled, tmp_path: Path) -> None:
    """It prints its result and nothing else; a report that a program reads is JSON."""
    env = os.environ | {"RANGELOG_PD": cluster.connect_string}
    done = subprocess.run(
        [sys.executable, "-m", "rangelog_jobs", "audit", "--stream", "jobs-mixed", "-o", "json", "-q"],
        capture_output=True, text=True, timeout=240, env=env, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["is_good"]
    assert done.stderr == ""


def test_an_interrupted_replay_ends_cleanly(
    cluster: Cluster, client: rangelog.sync.Client, clicks: tuple[str, str], tmp_path: Path
) -> None:
    """Ctrl-C ends a replay that follows, without a traceback; the next run goes on."""
    source, target = clicks
    argv = [
        sys.executable,
        "-m",
        "rangelog_jobs",
        "replay",
        source,
        "--to",
        target,
        "--checkpoint",
        str(tmp_path / "c"),
    ]
    env = os.environ | {"RANGELOG_PD": cluster.connect_string}
    with (tmp_path / "err").open("w") as file:
        process = subprocess.Popen([*argv, "--follow"], stderr=file, env=env, start_new_session=True)
    try:

        def appended() -> int:
            assert process.poll() is None, (tmp_path / "err").read_text()[-2000:]
            return client.end_offset(target)

        arrives(appended, 1_000, "all records are appended", 200.0)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        err = (tmp_path / "err").read_text()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err[-2000:]
    assert "Traceback" not in err and "rangelog-spark: interrupted" in err
    assert values_of(client, target) == values_of(client, source)
