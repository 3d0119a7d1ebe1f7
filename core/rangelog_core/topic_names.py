"""The names of topics: "namespace/name"; a bare name is in the namespace "default"."""

from __future__ import annotations

from typing import NamedTuple

from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name

DEFAULT_NAMESPACE = "default"
SEPARATOR = "/"


class TopicName(NamedTuple):
    """Both parts of a topic's name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}{SEPARATOR}{self.name}"


def parse_topic_name(name: str) -> TopicName:
    """Return the parts of a topic's name. Raises InvalidArgument.

    Example:
        >>> parse_topic_name("flights")
        TopicName(namespace='default', name='flights')
        >>> str(parse_topic_name("air/flights"))
        'air/flights'
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a topic is text, not {name!r}")
    namespace, separator, short = name.partition(SEPARATOR)
    if not separator:
        return TopicName(DEFAULT_NAMESPACE, check_name("topic", name))
    return TopicName(check_name("namespace", namespace), check_name("topic", short))
