"""The options of a streaming query, checked: those of a read, and those that only `readStream` has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rangelog.spark.options import Options, Position, flag, number, parse_options, position, size
from rangelog_core.errors import ConfigInvalid
from rangelog_core.ids import check_name

STREAMS_MAX = 10_000
ONLY = ("startingoffsets", "maxrecordspertrigger", "maxbytespertrigger", "failondataloss", "streampattern")
"""The names that only `readStream` knows, in lower case as Spark has them."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one streaming query.

    Attributes:
        read: The options that a read has as well.
        streams: The names of the streams; option "stream", separated by commas.
        pattern: A regular expression of names, all of which are followed, new ones from their beginnings; or "".
        starting: Where a new query begins: "earliest", "latest" (the default), a time, an offset, of a topic a cut as JSON.
            Option "startingOffsets"; a query that has a checkpoint goes on from there.
        records_per_trigger: Records of one micro-batch at most; None: all. Option "maxRecordsPerTrigger".
        bytes_per_trigger: Bytes of one micro-batch, by estimate; None: all. Option "maxBytesPerTrigger".
        fails_on_loss: False: records that were trimmed unread are counted and skipped. Option "failOnDataLoss".
    """

    read: Options
    streams: tuple[str, ...]
    pattern: str
    starting: Position
    records_per_trigger: int | None
    bytes_per_trigger: int | None
    fails_on_loss: bool

    @property
    def has_names(self) -> bool:
        """Whether rows say of which stream they are."""
        return bool(self.pattern) or len(self.streams) > 1


def is_for_streaming(given: Mapping[str, str]) -> bool:
    """Whether some options have a meaning for `readStream` only."""
    options = {name.lower(): value for name, value in given.items()}
    return any(name in options for name in ONLY) or "," in (options.get("stream") or options.get("path") or "")


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of these strings. Raises as `parse_options`."""
    options = {name.lower(): value for name, value in given.items()}
    for name in ("start", "end", "pushdown"):
        if name in options:
            raise ConfigInvalid(f"option {name} is for spark.read; a streaming query begins at startingOffsets")
    of_read = {name: value for name, value in options.items() if name not in (*ONLY, "path")}
    text = options.get("stream") or options.get("path", "")
    pattern = options.get("streampattern", "")
    names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if pattern:
        _check_pattern(pattern)
        if names or "topic" in options:
            raise ConfigInvalid("give one of the options stream, streamPattern and topic")
    if len(names) > STREAMS_MAX:
        raise ConfigInvalid(f"a query reads {STREAMS_MAX} streams at most, not {len(names)}")
    if names or pattern:
        of_read["stream"] = names[0] if names else "pattern"
    read = parse_options(of_read)
    records, size_text = options.get("maxrecordspertrigger"), options.get("maxbytespertrigger")
    start = options.get("startingoffsets", "latest")
    starting = (
        start
        if start == "latest"
        else position("startingOffsets", start, "earliest", datetime.now(UTC), of_topic=bool(read.topic))
    )
    return StreamOptions(
        read=read,
        streams=tuple(check_name("stream", each) for each in names),
        pattern=pattern,
        starting=starting,
        records_per_trigger=None if records is None else number("maxRecordsPerTrigger", records),
        bytes_per_trigger=None if size_text is None else size("maxBytesPerTrigger", size_text),
        fails_on_loss=flag("failOnDataLoss", options.get("failondataloss", "true")),
    )


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigInvalid(f"option streamPattern is no regular expression: {error}") from error
