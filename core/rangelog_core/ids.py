"""The identity of a replica, the valid names of streams and servers, and the internal names that no user can give."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import NAME_LENGTH_MAX

Incarnation = NewType("Incarnation", int)
"""The identity of one data directory. A type of its own, so that no epoch or offset takes its place."""

INTERNAL_NAME_START = "_"
"""Where internal names start. `check_name` allows no such start."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_SHARD_STREAM = re.compile(rf"{INTERNAL_NAME_START}topic-([0-9]{{1,20}})-shard-([0-9]{{1,20}})\Z")


class ReplicaId(NamedTuple):
    """A member of a replica set: a server in one incarnation of its data directory. A wiped server is another member."""

    server: str
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.server}@{self.incarnation:016x}"


def check_name(kind: str, name: str) -> str:
    """Return `name` if it is valid for a stream or a server. Raises InvalidArgument, whose message lists what is allowed."""
    if not name:
        raise InvalidArgument(f"a {kind} needs a name")
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a {kind} is text, not {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidArgument(f"the {kind} name has {len(name)} characters; the limit is {NAME_LENGTH_MAX}")
    if not _NAME.match(name):
        raise InvalidArgument(
            f"bad {kind} name {name!r}: use letters, digits, '.', '_' and '-', and start with a letter or digit"
        )
    return name


def shard_stream_name(topic_id: int, shard_id: int) -> str:
    """Return the name of the stream behind a shard. `check_name` refuses it, so no user can create such a stream."""
    return f"{INTERNAL_NAME_START}topic-{topic_id}-shard-{shard_id}"


def topic_of_stream_name(name: str) -> int | None:
    """Return the id of the topic whose shard has a stream of this name; None: it is no shard's.

    >>> topic_of_stream_name(shard_stream_name(1, 2)), topic_of_stream_name(side_log_name(1, 2))
    (1, None)
    """
    found = shard_of_stream_name(name)
    return found[0] if found is not None else None


def shard_of_stream_name(name: str) -> tuple[int, int] | None:
    """Return the ids of the topic and the shard whose stream has this name; None: it is no shard's.

    >>> shard_of_stream_name(shard_stream_name(1, 2))
    (1, 2)
    """
    found = _SHARD_STREAM.match(name)
    return (int(found[1]), int(found[2])) if found else None


def side_log_name(topic_id: int, shard_id: int) -> str:
    """Return the name of the side log of a shard: what its owner remembers beside the records."""
    return f"{shard_stream_name(topic_id, shard_id)}-side"


def journal_stream_name(number: int) -> str:
    """Return the name of the stream behind a coordinator journal."""
    return f"{INTERNAL_NAME_START}journal-{number}"


AUDIT_STREAM_NAME = f"{INTERNAL_NAME_START}audit"
"""The name of the stream of the audit log."""


def check_readable_name(name: str) -> str:
    """Return `name` if it is valid for a stream that is read, which may be a shard's. Raises InvalidArgument."""
    return name if _SHARD_STREAM.match(name) else check_name("stream", name)


def is_internal_name(name: str) -> bool:
    """Whether a stream of this name belongs to a topic, a journal or the audit log: no user creates, changes or deletes it."""
    return name.startswith(INTERNAL_NAME_START)
