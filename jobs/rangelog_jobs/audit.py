"""The job `audit`: is every record of every stream and topic there once, in order, and the same in each tier?

For each stream, and for the stream of each shard of a topic, over all that is readable: the listing of ranges and objects is
without gaps; the records that the tiers return count up by one; hot and tiered copies are the same wherever both exist; each
object's bytes fit its digest. A stream's digest depends on its records and their order only, not on where they are.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import StreamNotFound, TopicNotFound
from rangelog_jobs.argument_types import add_output, add_streams
from rangelog_jobs.audit_plan import Finding, StreamPlan, plan_stream
from rangelog_jobs.audit_tasks import run_audit_task
from rangelog_jobs.block_digests import Block, stream_digest
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.console import Console
from rangelog_jobs.fan_out import fan_out
from rangelog_jobs.job import EXIT_OK, EXIT_WRONG, Job, JobCall, JobTable
from rangelog_jobs.page import check_writable, page, show_size, show_time, table, tag, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1
_FINDINGS_SHOWN = 20


@dataclass
class StreamAudit:
    """The findings of one stream.

    Attributes:
        name: The stream; of a shard its topic and number: "shop/orders shard 3".
        stream_id: Its id.
        start: The first offset that was readable.
        end: One past the last record that was acked.
        digest: Of its records in order, "sha256:…"; None: some could not be read.
        read_count: Records that were read.
        compared_count: Of these, the ones whose hot and tiered copies were compared.
        payload_bytes: Bytes of keys and values.
        object_count: Objects whose bytes were compared with their digests.
        object_bytes: Their size.
        findings: The deviations, by offset.
        note: A change during the audit: records that were trimmed, for example.
    """

    name: str
    stream_id: int
    start: int
    end: int
    digest: str | None = None
    read_count: int = 0
    compared_count: int = 0
    payload_bytes: int = 0
    object_count: int = 0
    object_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    note: str = ""


@dataclass
class AuditReport:
    """The findings of all streams. `is_good`: nothing is wrong."""

    cluster: str
    begun_ms: int
    ended_ms: int
    streams: list[StreamAudit]

    @property
    def is_good(self) -> bool:
        """Whether there is no finding."""
        return not any(each.findings for each in self.streams)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rangelog.audit_version": VERSION,
            "cluster": self.cluster,
            "begun_ms": self.begun_ms,
            "ended_ms": self.ended_ms,
            "is_good": self.is_good,
            "streams": [asdict(each) for each in self.streams],
        }

    def to_text(self) -> str:
        """Return lines for people."""
        lines = []
        for each in self.streams:
            verdict = "ok" if not each.findings else f"{len(each.findings)} wrong"
            lines.append(
                f"{each.name}  [{each.start}, {each.end})  {each.read_count:,} records, {each.compared_count:,} compared, "
                f"{each.object_count} objects  {each.digest or 'no digest'}  {verdict}"
            )
            shown = each.findings[:_FINDINGS_SHOWN]
            lines += [f"  {found.kind}  [{found.start}, {found.end})  {_sentence(found)}" for found in shown]
            if len(each.findings) > len(shown):
                lines.append(f"  … and {len(each.findings) - len(shown)} more: see --json or --report")
            lines += [f"  {each.note}"] if each.note else []
        wrong = sum(bool(each.findings) for each in self.streams)
        ending = "nothing is wrong" if not wrong else f"something is wrong in {wrong}"
        count = len(self.streams)
        return "\n".join([*lines, f"{count} {'stream' if count == 1 else 'streams'}: {ending}"])

    def to_html(self) -> str:
        """Return one page that needs no other file."""
        verdict = tag("p", "Nothing is wrong.", "good") if self.is_good else tag("p", "Something is wrong.", "bad")
        rows = [
            (
                each.name, f"{each.start:,} – {each.end:,}", f"{each.read_count:,}", f"{each.compared_count:,}",
                show_size(each.payload_bytes), f"{each.object_count:,}", show_size(each.object_bytes),
                tag("code", each.digest) if each.digest else tag("span", each.note or "none", "quiet"),
                tag("span", "ok", "good") if not each.findings else tag("span", f"{len(each.findings)} wrong", "bad"),
            )
            for each in self.streams
        ]  # fmt: skip
        headings = [
            "stream", "#offsets", "#records", "#hot and tiered compared", "#keys and values", "#objects", "#their size",
            "digest", "verdict",
        ]  # fmt: skip
        found = [
            (stream.name, each.kind, f"{each.start:,} – {each.end:,}", tag("code", each.key), each.text)
            for stream in self.streams
            for each in stream.findings
        ]
        took_s = (self.ended_ms - self.begun_ms) / 1000
        parts = [
            verdict,
            tag("p", f"Cluster {self.cluster}, {show_time(self.begun_ms)}, {took_s:.0f} s.", "quiet"),
            tag("h2", "Findings"),
            table(["stream", "kind", "#offsets", "object", "what"], found, empty="None."),
            tag("h2", "Streams"),
            table(headings, rows, empty="The cluster has no such streams."),
        ]
        return page("rangelog audit", parts)


def audit_streams(
    spark: SparkSession,
    cluster: ClusterAddress,
    *,
    stream: str | None = None,
    prefix: str | None = None,
    topic: str | None = None,
    console: Console | None = None,
) -> AuditReport:
    """Audit one stream, those with a prefix, a topic's shards, or all streams and topics.

    Args:
        spark: The session.
        cluster: The cluster.
        stream: The name of the one stream.
        prefix: The start of the names.
        topic: The topic, but not a table: a table's log is compacted, so that offsets are missing as they should.
        console: Where to show progress; None: nowhere.

    Raises:
        StreamNotFound, TopicNotFound: There is no such stream or topic.
        TopicKindForbids: It is a table.
        Unavailable: The placement drivers do not answer.

    Example:
        ```python
        report = audit_streams(create_session(), ClusterAddress("127.0.0.1:7100"), stream="flights")
        print(report.is_good, report.streams[0].digest)
        ```
    """
    console = console or Console(quiet=True)
    begun_ms = time.time_ns() // 1_000_000
    plans: list[StreamPlan] = []
    client = cluster.client()
    labels = _labels(cluster, stream, prefix, topic)
    with console.progress("planning", "streams") as show:
        for name, label in labels.items():
            try:
                plans.append(client.run(plan_stream(client.asynchronous, name, label)))
            except StreamNotFound:
                if stream is not None:
                    raise
            show(len(plans), len(labels))
    work = [{"plan": number} | task for number, plan in enumerate(plans) for task in plan.tasks()]
    done = fan_out(spark, functools.partial(_with_plan, cluster), work, console, "audit")
    of_plan: list[list[dict[str, Any]]] = [[] for _ in plans]
    for result in done:
        of_plan[result["plan"]].append(result)
    streams = [fold(plan, results) for plan, results in zip(plans, of_plan, strict=True)]
    return AuditReport(cluster.pd, begun_ms, time.time_ns() // 1_000_000, streams)


def _labels(cluster: ClusterAddress, stream: str | None, prefix: str | None, topic: str | None) -> dict[str, str]:
    """Return the names of the streams that are asked for, each with what to call it."""
    if topic is not None:
        return cluster.shard_streams(topic, of_records=True)
    labels = {name: name for name in cluster.stream_names(stream, prefix)}
    if stream is None and prefix is None:
        for found in cluster.client().topics.list():
            with suppress(TopicNotFound):  # deleted meanwhile
                labels |= cluster.shard_streams(found.name)
    return labels


def _with_plan(cluster: ClusterAddress, item: dict[str, Any]) -> dict[str, Any]:
    return {"plan": item["plan"]} | run_audit_task(cluster, item)


def fold(plan: StreamPlan, results: Sequence[dict[str, Any]]) -> StreamAudit:
    """Return what the results of a plan's tasks say together."""
    audit = StreamAudit(plan.label, plan.stream_id, plan.start, plan.end)
    findings = list(plan.findings)
    blocks: list[Block] = []
    for result in results:
        findings += [Finding(**each) for each in result["findings"]]
        if result["kind"] == "object":
            audit.object_count += 1
            audit.object_bytes += result["size_bytes"]
        else:
            blocks += [Block(*each) for each in result["blocks"]]
            audit.read_count += result["read"]
            audit.compared_count += result["compared"]
            audit.payload_bytes += result["size_bytes"]
            if result["gone"]:
                audit.note = "records were trimmed, or the stream was deleted, during the audit"
    audit.findings = sorted(findings, key=lambda each: (each.start, each.end, each.kind))
    audit.digest = stream_digest(plan.start, plan.end, sorted(blocks, key=lambda each: each.start))
    return audit


def _sentence(found: Finding) -> str:
    return f"{found.text} (object {found.key})" if found.key and found.key not in found.text else found.text


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "audit",
            "Check that every record is there once, in order, and the same in each tier.",
            [
                "audit",
                "audit --stream flights",
                "audit --prefix shop. --report audit.html --json audit.json",
                "audit --topic shop/orders",
            ],
            _arguments,
            _run,
            "Exit codes: 0 nothing is wrong, 1 something is, 2 bad usage.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = add_streams(parser)
    which.add_argument("--topic", metavar="NAME", help="the shards of this topic")
    parser.add_argument("--report", metavar="FILE.html", help="write a page for people")
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON")
    add_output(parser)


def _run(call: JobCall) -> int:
    given = call.arguments
    html_file, json_file = check_writable(given.report), check_writable(given.json)
    cluster = call.cluster()
    report = audit_streams(
        call.session(), cluster, stream=given.stream, prefix=given.prefix, topic=given.topic, console=call.console
    )
    if html_file is not None:
        write_whole(html_file, report.to_html())
    if json_file is not None:
        write_whole(json_file, json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n")
    call.emit(report.to_dict(), report.to_text())
    return EXIT_OK if report.is_good else EXIT_WRONG
