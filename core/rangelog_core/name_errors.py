"""The errors for names that do not exist, or no longer: one sentence each, with the command that lists what there is.

Whoever meets such a name, in whatever program, makes the error here.
"""

from __future__ import annotations

from rangelog_core.errors import NamespaceNotFound, ShardNotFound, StreamNotFound, TopicNotFound, TopicStateForbids


def no_stream(name: str) -> StreamNotFound:
    """Return the error about a stream that is not there.

    >>> no_stream("clicks")
    StreamNotFound("no stream 'clicks': `pdctl stream list` shows what there is")
    """
    return StreamNotFound(_listed("stream", name))


def no_namespace(name: str) -> NamespaceNotFound:
    """Return the error about a namespace that is not there."""
    return NamespaceNotFound(_listed("namespace", name))


def no_topic(name: str) -> TopicNotFound:
    """Return the error about a topic that is not there, by "namespace/name"."""
    return TopicNotFound(_listed("topic", name))


def no_table(name: str) -> TopicNotFound:
    """Return the error about a table that is not there, by "namespace/name"."""
    return TopicNotFound(_listed("table", name))


def no_shard(topic: str, shard_id: int) -> ShardNotFound:
    """Return the error about a shard that a topic never had.

    >>> no_shard("default/t", 7)
    ShardNotFound("topic 'default/t' has no shard 7: `pdctl shard list default/t --all` shows what there is")
    """
    return ShardNotFound(
        f"topic {topic!r} has no shard {shard_id}: `pdctl shard list {topic} --all` shows what there is"
    )


def deleted_topic(name: str) -> TopicNotFound:
    """Return the error about a topic that was there when its user began."""
    return TopicNotFound(f"topic {name!r} was deleted")


def sealed_topic(name: str) -> TopicStateForbids:
    """Return the error about a record for a topic that is sealed."""
    return TopicStateForbids(f"topic {name!r} is sealed: it takes no records any more")


def _listed(kind: str, name: str) -> str:
    return f"no {kind} {name!r}: `pdctl {kind} list` shows what there is"
