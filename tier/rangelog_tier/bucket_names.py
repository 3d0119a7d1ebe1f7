"""The rule for names of S3 buckets."""

from __future__ import annotations

import re

from rangelog_core.errors import ConfigInvalid

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def check_bucket(name: str) -> None:
    """Check a bucket's name. Raises ConfigInvalid."""
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise ConfigInvalid(f"bad bucket name {name[:80]!r}: 3 to 63 lower-case letters, digits, dots and hyphens")
