"""Topics by tag: which names have a tag, in order.

What holds: the index follows from the rows. A page of topics with some tags looks at the names of the rarest of these tags,
and at a bounded number of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping

from rangelog_proto.v1 import topic_pb2

Tag = tuple[str, str]
LOOKED_AT_MAX = 5_000
"""Names that one page looks at; it may be short, and the next one continues."""


class TagIndex:
    """Full names of topics by tag."""

    def __init__(self, name_of: Callable[[topic_pb2.Topic], str]) -> None:
        self._name_of = name_of
        self._names: dict[Tag, list[str]] = {}

    def all(self) -> dict[Tag, list[str]]:
        """Return all. Not to be changed."""
        return self._names

    def page(self, tags: Mapping[str, str], prefix: str, after: str, size: int) -> tuple[list[str], str]:
        """Return names that have all `tags`, of which there is one at least, start with `prefix` and come after `after`;
        and the last name that was looked at, from which the next page continues; empty: there are no more."""
        lists = sorted((self._names.get((key, tags[key]), []) for key in sorted(tags)), key=len)
        rarest, others = lists[0], lists[1:]
        found: list[str] = []
        first = max(bisect_right(rarest, after), bisect_left(rarest, prefix))
        for at in range(first, len(rarest)):
            name = rarest[at]
            if not name.startswith(prefix):
                return found, ""
            if all(_contains(each, name) for each in others):
                found.append(name)
            if len(found) == size or at - first + 1 == LOOKED_AT_MAX:
                return found, name
        return found, ""

    def changed(self, before: topic_pb2.Topic | None, after: topic_pb2.Topic | None) -> None:
        """A row of the topics changed."""
        if before is not None and after is not None and before.tags == after.tags:
            return
        if before is not None:
            name = self._name_of(before)
            for tag in before.tags.items():
                names = self._names[tag]
                del names[bisect_left(names, name)]
                if not names:
                    del self._names[tag]
        if after is not None:
            name = self._name_of(after)
            for tag in after.tags.items():
                insort(self._names.setdefault(tag, []), name)


def _contains(names: list[str], name: str) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name
