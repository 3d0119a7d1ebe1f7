"""Whether the tier that a new cluster is asked to use can be used, before anything of the cluster is made.

What holds: what only the first upload would find (a bucket that is missing or denied, credentials that are none, a store that
ignores conditions) is found here, in one sentence; a cluster that exists starts without this, also while its tier is away.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from rangelog_core.errors import ConfigInvalid
from rangelog_tier.opening import open_object_store, store_location

_NEEDED = ("tier URL", "credentials", "endpoint", "bucket", "put", "get", "conditional put")


def check_tier(url: str) -> None:
    """Store, read and delete a small object at a tier URL; make a directory, and the bucket of a URL with create=true.

    Raises ConfigInvalid with what is wrong, MissingExtra without boto3, Unavailable where a directory or bucket cannot be made.
    """
    store_location(url)
    parts = urlsplit(url)
    if parts.scheme != "s3":
        open_object_store(url, create=True).close()
        return
    if parse_qs(parts.query).get("create") == ["true"]:
        open_object_store(url, create=True).close()
    from rangelog_tier.s3_examination import FAILED, examine

    for found in examine(url, 0):
        if found.state == FAILED and found.check in _NEEDED:
            raise ConfigInvalid(
                f"--tier: {found.detail.rstrip('.')}; nothing was started. `pdctl doctor s3 URL` looks closer"
            )
        if found.check == _NEEDED[-1]:
            return
