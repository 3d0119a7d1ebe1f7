"""The two ends of a copy: a stream, or a topic, which has a namespace in its name."""

from __future__ import annotations

from rangelog_jobs.cluster import ClusterAddress


def option_of(name: str) -> dict[str, str]:
    """Return the option of source and sink that names a stream or a topic.

    Example:
        >>> option_of("shop/orders")
        {'topic': 'shop/orders'}
    """
    return {"topic" if "/" in name else "stream": name}


def id_of(cluster: ClusterAddress, name: str) -> int:
    """Return the id of a stream or a topic. Raises StreamNotFound, TopicNotFound, InvalidArgument, Unavailable."""
    client = cluster.client()
    return client.topics.describe(name).topic_id if "/" in name else client.describe_stream(name).stream_id
