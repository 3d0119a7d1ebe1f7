"""The headers of an S3 server's answer to a GET: which bytes it has, and how long the object is.

What holds: only an object that by the answer's own words lacks bytes is too short. An answer with fewer bytes, or with others,
than were asked for says nothing of the object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rangelog_core.errors import Unavailable
from rangelog_tier.object_store import ObjectTooShort

_SPAN = re.compile(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)")
_PARTIAL = 206


def is_partial(answer: Mapping[str, Any]) -> bool:
    """Whether an answer has a span of its object, instead of all of it."""
    return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == _PARTIAL)


def check_answer(answer: Mapping[str, Any], key: str, start: int, length: int) -> None:
    """Check that an answer has `length` bytes from `start` on.

    Raises ObjectTooShort where the object lacks some of them, Unavailable where the answer does.
    """
    count = answer["ContentLength"]
    first, size = 0, count  # of a server that knows no spans: all of the object
    if is_partial(answer):
        told = _SPAN.fullmatch(answer.get("ContentRange", ""))
        first = int(told[1]) if told else start
        size = int(told[2]) if told and told[2] != "*" else start + length
    if size < start + length:
        raise ObjectTooShort(f"object {key} has no bytes {start} to {start + length}")
    if (first, count) != (start, length):
        raise Unavailable(
            f"the object store answered with {count} bytes of object {key} from {first} on, in place of {length} from {start} "
            "on: try again, and look at what stands between"
        )
