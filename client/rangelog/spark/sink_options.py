"""The options of a sink, checked. A plain value, so that Spark can send it to the workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rangelog.spark.options import TLS_OPTIONS, by_lower_name, flag, tls_files, token_of, unknown_option
from rangelog_core.errors import ConfigInvalid
from rangelog_core.ids import check_name
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token
from rangelog_core.topic_names import parse_topic_name

SINK_STREAMS = "spark-sink-"
"""What the names of the streams begin with that a sink keeps for itself: its decisions, and what tasks have staged."""
_KNOWN = ("pd", "stream", "topic", "token", "token_file", "write_id", "check_repeats", *TLS_OPTIONS)
_ONLY = {True: ("check_repeats",), False: ("write_id",)}
"""What only a streaming query has, and only a write."""
_OF_SPARK = ("path", "checkpointlocation", "queryname")
_WRITE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write.

    Attributes:
        pd: Addresses of the placement drivers; default: RANGELOG_PD.
        stream: The stream's name; it must exist. "" where a topic is written.
        topic: The topic's name, "namespace/name"; it must exist. "" where a stream is written.
        token: As of a read.
        write_id: Of `df.write`: a name of the write. To run a write again by the same name appends nothing if it was committed
            before, and completes it if it was cut off. "": each run is a write of its own.
        check_repeats: Of `df.writeStream`: a micro-batch that was appended before must have as many rows as it had then, since
            others would never be appended. False: it counts as done whatever it has, for queries that are not deterministic.
        tls: As of a read.
    """

    pd: str
    stream: str
    topic: str
    token: Token | None
    write_id: str = ""
    check_repeats: bool = True
    tls: TlsConfig | None = None


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Return the options of these strings. Raises ConfigInvalid, which names the option; InvalidArgument for a bad name."""
    options = by_lower_name(given)
    known = [name for name in _KNOWN if name not in _ONLY[not streaming]]
    for name in options:
        if name not in known and name not in _OF_SPARK:
            raise unknown_option(name, "to write with format rangelog", known)
    pd = options.get("pd") or os.environ.get("RANGELOG_PD", "")
    if not pd:
        raise ConfigInvalid("no placement driver is given: .option('pd', 'host:port,…') or set RANGELOG_PD")
    stream = options.get("stream") or options.get("path", "")
    topic = options.get("topic", "")
    if not stream and not topic:
        raise ConfigInvalid("no stream is given: .option('stream', NAME), or .option('topic', NAME)")
    if stream and topic:
        raise ConfigInvalid(
            f"both a stream and a topic are given: {stream[:100]!r} and {topic[:100]!r}; give one of them"
        )
    write_id = options.get("write_id", "")
    if write_id and not _WRITE_ID.fullmatch(write_id):
        raise ConfigInvalid(f"option write_id is up to 100 letters, digits, '.', '_' and '-', not {write_id[:100]!r}")
    return SinkOptions(
        pd=pd,
        stream=check_name("stream", stream) if stream else "",
        topic=str(parse_topic_name(topic)) if topic else "",
        token=token_of(options),
        write_id=write_id,
        check_repeats=flag("check_repeats", options.get("check_repeats", "true")),
        tls=tls_files(options),
    )
