"""The kinds of topics: of records, and tables. Whoever uses a topic of one kind refuses those of the other."""

from __future__ import annotations

from rangelog_core.errors import TopicKindForbids
from rangelog_proto.v1 import topic_pb2

_IN_WORDS = {topic_pb2.TOPIC_KIND_RECORDS: "a topic of records", topic_pb2.TOPIC_KIND_TABLE: "a table"}


def check_kind(topic: topic_pb2.Topic, wanted: topic_pb2.TopicKind) -> topic_pb2.Topic:
    """Return the topic. Raises TopicKindForbids unless it is of this kind.

    A topic without a kind is one of records.
    """
    kind = topic.config.kind or topic_pb2.TOPIC_KIND_RECORDS
    if kind != wanted:
        found = _IN_WORDS.get(kind, "of a later kind")
        raise TopicKindForbids(f"{topic.namespace}/{topic.name} is {found}, not {_IN_WORDS[wanted]}")
    return topic
