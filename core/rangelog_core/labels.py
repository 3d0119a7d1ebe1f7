"""Labels of range servers, "key=value": what a stream may ask of the servers of its replicas."""

from __future__ import annotations

import re
from collections.abc import Collection

from rangelog_core.errors import InvalidArgument

LABELS_MAX = 16
LABEL_LENGTH_MAX = 100

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._/-]+", re.ASCII)


def check_labels(labels: Collection[str]) -> None:
    """Raise InvalidArgument for too many labels, for one that is not key=value, and for a key that comes twice."""
    if len(labels) > LABELS_MAX:
        raise InvalidArgument(f"{len(labels)} labels; the limit is {LABELS_MAX}")
    keys: dict[str, None] = {}
    for label in labels:
        if not isinstance(label, str) or len(label) > LABEL_LENGTH_MAX or _LABEL.fullmatch(label) is None:
            raise InvalidArgument(
                f"bad label {str(label)[:LABEL_LENGTH_MAX]!r}: write key=value, of letters, digits and . _ / -, in at most "
                f"{LABEL_LENGTH_MAX} characters"
            )
        key = label.partition("=")[0]
        if key in keys:
            raise InvalidArgument(f"label {key!r} has two values: a server has one value for each key")
        keys[key] = None
