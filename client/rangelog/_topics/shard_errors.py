"""Errors about the stream of a shard, as errors about the shard: whoever reads a topic does not know its streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rangelog_core.errors import OffsetOutOfRange, RangelogError, StorageFull, StreamNotFound
from rangelog_core.name_errors import deleted_topic


def of_shard(error: RangelogError, topic: str, shard_id: int) -> RangelogError:
    """Return the error as one of the shard: TopicNotFound; errors of offsets, and StorageFull, with both; others as they are.

    >>> of_shard(OffsetOutOfRange("offset 7 is beyond the end", offset=5), "default/t", 3)
    OffsetOutOfRange("topic 'default/t', shard 3: offset 7 is beyond the end")
    """
    if isinstance(error, StreamNotFound):
        return deleted_topic(topic)
    if isinstance(error, OffsetOutOfRange | StorageFull):
        told = f"topic {topic!r}, shard {shard_id}: {error.message}"
        return type(error)(told, offset=error.offset, outcome_unknown=error.outcome_unknown)
    return error


@contextmanager
def errors_of_shard(topic: str, shard_id: int) -> Iterator[None]:
    """Raise errors about the stream of a shard as errors about the shard; see `of_shard`."""
    try:
        yield
    except (StreamNotFound, OffsetOutOfRange) as error:
        raise of_shard(error, topic, shard_id) from error
