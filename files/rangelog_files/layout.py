"""The names of event files: NAME/GENERATION/START.DURATION/PREFIX.SEQUENCE.(dat|idx); no I/O.

What holds: a path has one spelling, so parsing and printing are inverse to each other, and no name leads out of the directory
of its store. A partition is a span of time; the partitions of one writer never overlap, and they follow one another in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import NAME_LENGTH_MAX, TIMESTAMP_MS_MAX

DATA_SUFFIX = "dat"
INDEX_SUFFIX = "idx"
DURATION_S_DEFAULT = 86_400
"""A partition for each day."""
NUMBER_MAX = 10**15
"""Of generations and sequences: far above any count, and exact in every program's numbers."""
TIME_S_MAX = TIMESTAMP_MS_MAX // 1_000
_GENERATION_DIGITS = 5
_SEQUENCE_DIGITS = 6
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)


class TimePartition(NamedTuple):
    """The span `[start_s, start_s + duration_s)` of seconds since 1970 that one directory of event files is for.

    Example:
        >>> TimePartition(1401408000, 86400).text
        '1401408000.86400'
    """

    start_s: int
    duration_s: int

    @property
    def end_s(self) -> int:
        """The first second behind the partition."""
        return self.start_s + self.duration_s

    @property
    def text(self) -> str:
        """The name of its directory."""
        return f"{self.start_s}.{self.duration_s}"

    def holds(self, time_ms: int) -> bool:
        """Return whether the partition is for events that were written at this time."""
        return self.start_s * 1_000 <= time_ms < self.end_s * 1_000


class EventPath(NamedTuple):
    """The place of one event file, and of the index beside it. Sorts as a reader reads the files of one writer.

    Attributes:
        stream: The name of the stream of events.
        generation: The number of its generation; a truncation begins the next.
        partition: The span of time that its blocks are in.
        prefix: The name of its writer.
        sequence: Counts the files of this writer in this partition.

    Example:
        >>> EventPath("who", 1, TimePartition(1401408000, 86400), "file.0", 0).data_path
        'who/00001/1401408000.86400/file.0.000000.dat'
    """

    stream: str
    generation: int
    partition: TimePartition
    prefix: str
    sequence: int

    @property
    def data_path(self) -> str:
        """The path of the event file, relative to the store."""
        return f"{self.folder}/{self.prefix}.{self.sequence:0{_SEQUENCE_DIGITS}}.{DATA_SUFFIX}"

    @property
    def index_path(self) -> str:
        """The path of the index beside it."""
        return f"{self.folder}/{self.prefix}.{self.sequence:0{_SEQUENCE_DIGITS}}.{INDEX_SUFFIX}"

    @property
    def folder(self) -> str:
        """The path of its partition's directory."""
        return f"{generation_folder(self.stream, self.generation)}/{self.partition.text}"


def checked_name(name: str, what: str = "name") -> str:
    """Return a name of a stream or a writer that can be a part of a path.

    Letters, digits, `.`, `_` and `-`, at most 200 of them, and no dot in front. Raises InvalidArgument.
    """
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"bad {what} {name!r}: letters, digits, . _ and -, at most {NAME_LENGTH_MAX}, no dot in front"
        )
    return name


def checked_path(path: EventPath) -> EventPath:
    """Return a path whose parts are all within their bounds. Raises InvalidArgument."""
    checked_name(path.stream, "name of a stream")
    checked_name(path.prefix, "name of a writer")
    for number in (path.generation, path.sequence):
        if not 0 <= number <= NUMBER_MAX:
            raise InvalidArgument(f"the number {number} of a generation or a file is not in 0 … {NUMBER_MAX}")
    start_s, duration_s = path.partition
    if not 0 <= start_s <= TIME_S_MAX or not 0 < duration_s <= TIME_S_MAX:
        raise InvalidArgument(f"the partition {path.partition.text} is not a span of seconds in the years 1970 to 9999")
    return path


def generation_folder(stream: str, generation: int) -> str:
    """Return the path of a generation's directory: "who/00001"."""
    return f"{stream}/{generation:0{_GENERATION_DIGITS}}"


def parse_generation(text: str) -> int | None:
    """Return the number that a directory's name stands for; None: it is not the name of a generation."""
    return _number(text, _GENERATION_DIGITS)


def parse_partition(text: str) -> TimePartition | None:
    """Return the partition that a directory's name stands for; None: it is not the name of one."""
    start, dot, duration = text.partition(".")
    start_s, duration_s = _number(start, 1), _number(duration, 1)
    if not dot or start_s is None or not duration_s or max(start_s, duration_s) > TIME_S_MAX:
        return None
    return TimePartition(start_s, duration_s)


def parse_file(text: str) -> tuple[str, int, str] | None:
    """Return prefix, sequence and suffix of a file's name; None: it is not the name of an event file or an index."""
    stem, _, suffix = text.rpartition(".")
    prefix, _, digits = stem.rpartition(".")
    sequence = _number(digits, _SEQUENCE_DIGITS)
    if suffix not in (DATA_SUFFIX, INDEX_SUFFIX) or sequence is None or len(prefix) > NAME_LENGTH_MAX:
        return None
    return (prefix, sequence, suffix) if _NAME.fullmatch(prefix) else None


def parse_path(text: str) -> EventPath:
    """Return the place that the path of an event file or an index stands for. Raises InvalidArgument.

    Example:
        >>> parse_path("who/00001/1401408000.86400/file.0.000000.dat").sequence
        0
    """
    parts = text.split("/") if isinstance(text, str) else []
    if len(parts) == 4 and len(parts[0]) <= NAME_LENGTH_MAX and _NAME.fullmatch(parts[0]):
        generation, partition, named = parse_generation(parts[1]), parse_partition(parts[2]), parse_file(parts[3])
        if generation is not None and partition is not None and named is not None:
            return EventPath(parts[0], generation, partition, named[0], named[1])
    raise InvalidArgument(
        f"{str(text)[:400]!r} is not the path of an event file: NAME/GENERATION/START.DURATION/PREFIX.SEQUENCE.dat"
    )


def _number(text: str, digits: int) -> int | None:
    """Return a number with at least so many digits, filled up with zeros; None for every other spelling."""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if f"{number:0{digits}}" == text and number <= NUMBER_MAX else None


def partitions_between(
    partitions: Iterable[TimePartition], from_ms: int | None = None, until_ms: int | None = None
) -> list[TimePartition]:
    """Return the partitions that may have blocks of the times `[from_ms, until_ms)`, by their start; None: without a bound."""
    return sorted(
        each
        for each in partitions
        if (from_ms is None or each.end_s * 1_000 > from_ms) and (until_ms is None or each.start_s * 1_000 < until_ms)
    )


def partition_for_writing(time_ms: int, duration_s: int, latest: TimePartition | None) -> TimePartition:
    """Return the partition for a block that is written now.

    Args:
        time_ms: The writer's clock, in ms since 1970.
        duration_s: How long partitions are, in seconds; it may have changed since the latest.
        latest: The latest partition in which this writer has a file; a clock that went back stays in it.

    Raises InvalidArgument for a time before 1970, and for a duration that is not positive.

    Example:
        >>> partition_for_writing(1_401_450_000_000, 86_400, None)
        TimePartition(start_s=1401408000, duration_s=86400)
    """
    if not 0 < duration_s <= TIME_S_MAX or not 0 <= time_ms <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"no partition of {duration_s} s for the time {time_ms} ms since 1970")
    start_s = time_ms // 1_000 // duration_s * duration_s
    if latest is None or start_s >= latest.end_s:
        return TimePartition(start_s, duration_s)
    if time_ms < latest.end_s * 1_000:
        return latest
    return TimePartition(latest.end_s, start_s + duration_s - latest.end_s)


def next_path(
    stream: str, generation: int, prefix: str, existing: Iterable[EventPath], time_ms: int, duration_s: int
) -> EventPath:
    """Return the path of the next file of a writer: nothing is ever appended to one that exists.

    Args:
        stream: The name of the stream of events.
        generation: Its present generation.
        prefix: The name of the writer.
        existing: All files of this generation, of whichever writers; indexes count like their event files.
        time_ms: The writer's clock, in ms since 1970.
        duration_s: How long partitions are, in seconds.

    Raises InvalidArgument.
    """
    own = [
        (each.partition, each.sequence) for each in existing if each.prefix == prefix and each.generation == generation
    ]
    latest = max((partition for partition, _ in own), default=None)
    partition = partition_for_writing(time_ms, duration_s, latest)
    sequence = max((number for where, number in own if where == partition), default=-1) + 1
    return checked_path(EventPath(stream, generation, partition, prefix, sequence))
