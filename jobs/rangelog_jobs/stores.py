"""The object store of a cluster in one of Spark's processes: opened once."""

from __future__ import annotations

import os

from rangelog_core.errors import ConfigInvalid
from rangelog_jobs.cluster import ClusterAddress
from rangelog_tier import ObjectStore, open_object_store

_stores: dict[tuple[object, ...], ObjectStore] = {}


def store_of(cluster: ClusterAddress) -> ObjectStore:
    """Return the cluster's object store. Raises ConfigInvalid, Unavailable."""
    return tier_of(cluster)[0]


def tier_of(cluster: ClusterAddress) -> tuple[ObjectStore, str]:
    """Return the same, and the tier's URL. Raises as `store_of`."""
    client = cluster.client()
    url = cluster.tier_url or client.run(client.asynchronous.metadata.tier_url())
    if not url:
        raise ConfigInvalid("the cluster names no tier: pass --tier-url")
    key = (os.getpid(), url, cluster.encryption_keys)
    store = _stores.get(key)
    if store is None:
        store = _stores[key] = open_object_store(url, keys=cluster.encryption_keys)
    return store, url
