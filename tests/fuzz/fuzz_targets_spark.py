"""What users give Spark: options of sources and sinks, conditions, and what a checkpoint keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rangelog.spark.filters import Selection
from rangelog.spark.offsets import QueryOffsets
from rangelog.spark.options import parse_options
from rangelog.spark.sink_options import parse_sink_options
from rangelog.spark.stream_options import parse_stream_options
from rangelog.spark.where import parse_where
from tests.fuzz.fuzz_engine import Target
from tests.fuzz.fuzz_targets_text import DEEP, text_of, words

CUT = b'{"cut":1,"topic_id":7,"offsets":{"1":250,"2":0}}'


def run_options(data: bytes) -> bool:
    """Options of a read, a `key=value` each line."""
    options = parse_options(_lines(data))
    assert options.records_per_partition > 0
    assert bool(options.topic) != bool(options.stream)
    return True


def run_stream_options(data: bytes) -> bool:
    """Options of a streaming query: each name has a start."""
    options = parse_stream_options(_lines(data))
    assert bool(options.topics) != bool(options.streams or options.pattern)
    if isinstance(options.starting, Mapping) and not options.pattern:
        assert options.starting.keys() == {*options.streams, *options.topics}
    for name in (*options.streams, *options.topics):
        assert options.start_of(name) is not None
    return True


def run_sink_options(data: bytes) -> bool:
    """Options of a write: one target."""
    options = parse_sink_options(_lines(data), streaming=False)
    assert bool(options.topic) != bool(options.stream)
    return True


def run_where(data: bytes) -> bool:
    """Conditions."""
    assert isinstance(parse_where(text_of(data), of_topic=True), Selection)
    return True


def run_checkpoint(data: bytes) -> bool:
    """Offsets of a checkpoint, which Spark has parsed: what is taken is given back."""
    try:
        kept = json.loads(text_of(data))
    except (ValueError, RecursionError):
        return False
    offsets = QueryOffsets.from_dict(kept)
    assert QueryOffsets.from_dict(offsets.to_dict()) == offsets
    return True


def _lines(data: bytes) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition("=") for line in text_of(data).split("\n"))}


TARGETS = (
    Target(
        "spark-options", lambda: [
            b"pd=a:1\nstream=s\nstart=earliest\nend=7\nrecords_per_partition=10",
            b"pd=a:1\ntopic=n/t\nstart=" + CUT + b"\nend=2026-01-31T12:00:00+01:00",
        ],
        run_options, None,
        words("payload=", "true", "start=", "\n", "=", "end=" + "9" * 5_000, "read_preference=cold_only", "path=x", "token=t"),
    ),
    Target(
        "spark-stream-options", lambda: [
            b'pd=a:1\nstream=s,t\nstartingOffsets={"s": 250, "t": "-1h"}\nmaxRecordsPerTrigger=10',
            b'pd=a:1\ntopic=n/t,u\nstartingOffsets={"n/t": ' + CUT + b', "u": "latest"}',
            b"pd=a:1\nstreamPattern=a.*\nstartingOffsets=earliest\nfailOnDataLoss=false",
            b"pd=a:1\nstream=s\nstartingOffsets={" + DEEP,
        ],
        run_stream_options, None,
        words("{", "}", ":", ",", '"s"', '"cut"', "[", "\n", "=", "9" * 5_000, "maxBytesPerTrigger=1m", "null", "start="),
    ),
    Target(
        "spark-sink-options", lambda: [b"pd=a:1\nstream=s\nwrite_id=nightly-1", b"pd=a:1\ntopic=n/t\npath="],
        run_sink_options, None, words("\n", "=", "write_id=", "topic=", "stream=", "token=", "x" * 200, "/"),
    ),
    Target(
        "spark-where", lambda: [
            b"offset >= 1000 AND timestamp < '2026-01-31T12:00:00Z' AND key IN ('a', X'00ff') AND shard = 3",
            b"key = 'it''s' AND offset IN (1, 2, -3)",
        ],
        run_where, None,
        words("AND", "IN", "(", ")", ",", "'", "X'", "offset", "timestamp", "key", "shard", "<=", "9" * 19, "-", "\0"),
    ),
    Target(
        "spark-checkpoint", lambda: [
            b'{"rangelog": 1, "streams": {"flights": {"id": 7, "from": 0, "offset": 250}}, "skipped": 0}',
            b'{"rangelog": 1, "topics": {"default/rides": {"id": 3, "cut": {"0": 120, "1": 80}}}, "skipped": 3}',
            DEEP,
        ],
        run_checkpoint, None,
        words("{", "}", ":", ",", "[", '"cut"', '"id"', '"rangelog"', "1", "-1", "1e3", "true", "null", "9" * 30, "\u00b2"),
    ),
)  # fmt: skip
