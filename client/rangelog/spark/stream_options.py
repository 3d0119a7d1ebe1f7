"""The options of a streaming query, checked: those of a read, and those that only `readStream` has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rangelog.spark.options import OF_STREAMING, Options, Position, by_lower_name, flag, number, parse_options, size
from rangelog.spark.starting import START_DEFAULT, Starting, parse_starting
from rangelog_core.errors import ConfigInvalid
from rangelog_core.ids import check_name
from rangelog_core.topic_names import parse_topic_name

_LITERAL = re.compile("[A-Za-z0-9_-]*")
STREAMS_MAX = 10_000
TOPICS_MAX = 1_000
ONLY = tuple(each.lower() for each in OF_STREAMING)
"""The names that only `readStream` knows, in lower case as Spark has them."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one streaming query.

    Attributes:
        read: The options that a read has as well. Its stream or topic is only one of those of the query.
        streams: The names of the streams; option "stream", separated by commas.
        topics: The names of the topics, with their namespaces; option "topic", separated by commas.
        pattern: A regular expression of names, all of which are followed, new ones from their beginnings; or "".
        starting: Where a new query begins, as `rangelog.spark.starting` reads it: of all, or of each. Option "startingOffsets";
            a query that has a checkpoint goes on from there.
        records_per_trigger: Records of one micro-batch at most; None: all. Option "maxRecordsPerTrigger".
        bytes_per_trigger: Bytes of one micro-batch, by estimate; None: all. Option "maxBytesPerTrigger".
        fails_on_loss: False: records that were trimmed unread are counted and skipped. Option "failOnDataLoss".
    """

    read: Options
    streams: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str
    starting: Starting
    records_per_trigger: int | None
    bytes_per_trigger: int | None
    fails_on_loss: bool

    @property
    def has_names(self) -> bool:
        """Whether rows say of which stream or topic they are."""
        return bool(self.pattern) or len(self.streams) + len(self.topics) > 1

    def start_of(self, name: str) -> Position:
        """Return where a new query begins with a stream or topic; "latest" for a name of a pattern that is not told."""
        return self.starting.get(name, START_DEFAULT) if isinstance(self.starting, Mapping) else self.starting


def is_for_streaming(given: Mapping[str, str]) -> bool:
    """Whether some options have a meaning for `readStream` only."""
    return bool(_of_streaming(given))


def check_not_streaming(given: Mapping[str, str]) -> None:
    """Raise ConfigInvalid, which names them, if some options have a meaning for `readStream` only."""
    found = _of_streaming(given)
    if found:
        raise ConfigInvalid(f"for spark.readStream only: {', '.join(found)}; spark.read reads one stream or topic")


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of these strings. Raises as `parse_options`."""
    options = by_lower_name(given)
    for name in ("start", "end", "pushdown"):
        if name in options:
            raise ConfigInvalid(f"option {name} is for spark.read; a streaming query begins at startingOffsets")
    of_read = {name: value for name, value in options.items() if name not in (*ONLY, "path")}
    pattern = options.get("streampattern", "")
    names = _split(options.get("stream") or options.get("path", ""))
    topics = tuple(dict.fromkeys(str(parse_topic_name(each)) for each in _split(options.get("topic", ""))))
    if pattern:
        _check_pattern(pattern)
        if names or topics:
            raise ConfigInvalid("give one of the options stream, streamPattern and topic")
    for what, given_names, most in (("streams", names, STREAMS_MAX), ("topics", topics, TOPICS_MAX)):
        if len(given_names) > most:
            raise ConfigInvalid(f"a query reads {most} {what} at most, not {len(given_names)}")
    if names or pattern:
        of_read["stream"] = names[0] if names else "pattern"
    if topics:
        of_read["topic"] = topics[0]
    read = parse_options(of_read)
    records, size_text = options.get("maxrecordspertrigger"), options.get("maxbytespertrigger")
    start = options.get("startingoffsets", START_DEFAULT)
    return StreamOptions(
        read=read,
        streams=tuple(check_name("stream", each) for each in names),
        topics=topics,
        pattern=pattern,
        starting=parse_starting(start, names or topics, datetime.now(UTC), of_topics=bool(topics)),
        records_per_trigger=None if records is None else number("maxRecordsPerTrigger", records),
        bytes_per_trigger=None if size_text is None else size("maxBytesPerTrigger", size_text),
        fails_on_loss=flag("failOnDataLoss", options.get("failondataloss", "true")),
    )


def literal_prefix(pattern: str) -> str:
    """Return what every name begins with that a regular expression matches as a whole, so that no others are listed; or "".

    Example:
        >>> literal_prefix("clicks-[0-9]+"), literal_prefix("a|b")
        ('clicks-', '')
    """
    literal = _LITERAL.match(pattern)
    assert literal is not None
    text, following = literal[0], pattern[literal.end() : literal.end() + 1]
    if "|" in pattern:
        return ""
    return text[:-1] if following and following in "*?{" else text


def _of_streaming(given: Mapping[str, str]) -> list[str]:
    options = by_lower_name(given)
    several = [f"several names in {name}" for name in ("stream", "path", "topic") if "," in options.get(name, "")]
    return several + [f"option {name}" for name in ONLY if name in options]


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigInvalid(f"option streamPattern is no regular expression: {error}") from error
