"""The options of the data source, checked. A plain value, so that Spark can send it to the workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rangelog._topics.cut import Cut
from rangelog.protocol.reading import ReadPreference
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.record import ms_of
from rangelog_core.topic_names import parse_topic_name

RECORDS_PER_PARTITION_DEFAULT = 1_000_000
_NUMBER = re.compile(r"[0-9]{1,18}")  # of an offset; those of Spark are signed 64-bit integers
_KNOWN = (
    "pd", "stream", "topic", "start", "end", "token", "tier_url", "payload", "read_preference", "records_per_partition",
)  # fmt: skip


Position = str | int | Cut | datetime
"""A word or an offset; of a topic a word, a cut or a time."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read.

    Attributes:
        pd: Addresses of the placement drivers; default: RANGELOG_PD.
        stream: The stream's name; "" where a topic is read.
        topic: The topic's name, "namespace/name"; "" where a stream is read.
        start: "earliest"; or an offset; of a topic a cut as JSON, or a time in ISO 8601, in UTC unless it names another
            offset: in each shard the first record at or after it.
        end: "latest"; or an offset; of a topic a cut or a time.
        token: The cluster's token, if it requires one.
        tier_url: The object store's URL, where Spark reaches it by another URL than the cluster.
        payload: False: only the columns offset and timestamp.
        read_preference: "hot_first", "cold_first", "hot_only" or "cold_only".
        records_per_partition: Records of one input partition at most.
    """

    pd: str
    stream: str
    topic: str
    start: Position
    end: Position
    token: str | None
    tier_url: str | None
    payload: bool
    read_preference: str
    records_per_partition: int


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the options of these strings.

    Raises ConfigInvalid, which names the option; InvalidArgument for a bad name; UnsupportedVersion for a cut's text of a later
    version.
    """
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _KNOWN and name != "path":
            raise ConfigInvalid(f"unknown option {name!r} for format rangelog: choose from {', '.join(_KNOWN)}")
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
    position = _topic_position if topic else _offset
    payload = options.get("payload", "true").lower()
    if payload not in ("true", "false"):
        raise ConfigInvalid(f"option payload is true or false, not {payload!r}")
    preference = options.get("read_preference", "hot_first")
    return Options(
        pd=pd,
        stream=check_name("stream", stream) if stream else "",
        topic=str(parse_topic_name(topic)) if topic else "",
        start=position("start", options.get("start", "earliest"), "earliest"),
        end=position("end", options.get("end", "latest"), "latest"),
        token=options.get("token"),
        tier_url=options.get("tier_url"),
        payload=payload == "true",
        read_preference=ReadPreference.parse(preference).value,
        records_per_partition=_number("records_per_partition", options.get("records_per_partition")),
    )


def _offset(name: str, text: str, word: str) -> str | int:
    if text == word:
        return word
    if _NUMBER.fullmatch(text):
        return int(text)
    raise ConfigInvalid(f"option {name} is {word!r} or an offset, not {text[:100]!r}")


def _topic_position(name: str, text: str, word: str) -> str | Cut | datetime:
    if text == word:
        return word
    try:
        if text.startswith("{"):
            return Cut.from_json(text)
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        ms_of(moment)
    except (InvalidArgument, ValueError) as error:
        raise ConfigInvalid(
            f"option {name} of a topic is {word!r}, a cut as JSON, or a time such as 2026-01-31T12:00:00Z, "
            f"not {text[:100]!r}: {error}"
        ) from error
    return moment


def _number(name: str, text: str | None) -> int:
    if text is None:
        return RECORDS_PER_PARTITION_DEFAULT
    if _NUMBER.fullmatch(text) and int(text) > 0:
        return int(text)
    raise ConfigInvalid(f"option {name} is a number above 0, not {text[:100]!r}")
