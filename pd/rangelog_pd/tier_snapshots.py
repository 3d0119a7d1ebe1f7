"""Writes the leader's snapshots to the tier, so that a cluster can be restored from the bucket alone.

What holds: no call and no entry waits for it. The rows are listed under the lock, as for a snapshot of Raft; encoding, and all
calls of the store, are on a thread of its own. A snapshot is never replaced: its key has the log index of its state, and two
leaders that write the same index write the same state.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rangelog_core import tier_snapshot
from rangelog_core.errors import EncryptionKeyMissing, PreconditionFailed, RangelogError
from rangelog_core.object_keys import parse_snapshot_key, snapshot_key, snapshot_prefix
from rangelog_pd.driver import Driver
from rangelog_pd.state.restore import was_never_used
from rangelog_pd.state.snapshot import Frozen
from rangelog_pd.state.store import State
from rangelog_pd.state.tier_stores import tier_url
from rangelog_pd.state.versions import LEVEL_ENCRYPTION
from rangelog_proto.v1 import restore_pb2
from rangelog_server_common.single_thread import SingleThread
from rangelog_tier.encrypted_file import encrypt_file

if TYPE_CHECKING:
    from rangelog_tier import ObjectStore
    from rangelog_tier.encryption_keys import KeyProvider

LOOK_INTERVAL_S = 0.5
_FILE = "tier-snapshot.tmp"

_log = structlog.get_logger("pd")


def encryption_problem(state: State, keys: KeyProvider | None) -> str:
    """Return why no snapshot may be written, by the keys that this member has; empty: it may be."""
    if keys is not None and state.cluster_version < LEVEL_ENCRYPTION:
        return (
            f"snapshots are encrypted from cluster version {LEVEL_ENCRYPTION} on, and this cluster is at "
            f"{state.cluster_version}: finish the upgrade (`pdctl upgrade check`)"
        )
    if keys is None and state.range_objects.encrypted_count:
        return (
            "the cluster's objects are encrypted, and this placement driver has no keys: a snapshot in clear would name its "
            "streams; set encryption_keys_dir or encryption_kms_key_id as on the range servers"
        )
    return ""


class TierSnapshots:
    """See the module. Use `run` in a task; `close` it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._path = driver.settings.data_dir / _FILE
        self._encrypted = self._path.with_suffix(".encrypted.tmp")
        self._store: ObjectStore | None = None
        self._url = ""
        self._worker = SingleThread("tier-snapshots")

    def close(self) -> None:
        """End the thread after its current call."""
        self._worker.close()

    async def run(self) -> None:
        """Write snapshots while this member leads, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                if self._driver.consensus.is_leader():
                    await self._look()
            except Exception:
                _log.exception("a snapshot in the tier failed")

    async def _look(self) -> None:
        """Write one if it is due."""
        driver = self._driver
        schedule, applied = driver.tier_snapshots, driver.machine.applied
        if not schedule.is_due(driver.now_ms(), applied.changing, applied.urgent):
            return
        url = driver.tier_url()
        if not url:
            return
        seen = driver.consensus.status().applied_index  # that of a state that was loaded, before any entry is applied
        with driver.state() as state:
            running = state.restore.phase == restore_pb2.RESTORE_PHASE_RUNNING
            if not state.cluster_id or running or was_never_used(state):
                return  # an empty cluster must not hide the one whose bucket it is given
            problem = encryption_problem(state, driver.encryption_keys)
            index = max(applied.last, seen)
            header = restore_pb2.TierSnapshotHeader(
                cluster_id=state.cluster_id,
                time_ms=driver.time_ms(),
                applied_index=index,
                cluster_version=state.cluster_version,
                restored_from=state.restore.source_cluster_id,
                tier_url=tier_url(state, driver.settings.tier_url),
            )
            frozen = driver.machine.freeze_rows()
        failed_before = schedule.last_error
        try:
            if problem:
                raise EncryptionKeyMissing(problem)
            size = await self._worker.run(functools.partial(self._write, url, header, frozen))
        except (RangelogError, OSError) as error:
            problem = error.message if isinstance(error, RangelogError) else f"{error.strerror or error}: {self._path}"
            schedule.failed(driver.now_ms(), problem)
            if problem != failed_before:
                _log.warning("no snapshot could be written to the tier; nothing else is affected", problem=problem)
            return
        schedule.written(driver.now_ms(), index, header.time_ms, size)
        if failed_before:
            _log.info("snapshots are written to the tier again", index=index)

    # ---- on the thread

    def _write(self, url: str, header: restore_pb2.TierSnapshotHeader, frozen: Frozen) -> int:
        """Write one, then delete the oldest of too many. Return its size. Raises RangelogError, OSError."""
        if self._store is None or url != self._url:
            from rangelog_tier.opening import open_object_store

            self._store, self._url = open_object_store(url, create=True), url
        try:
            with self._path.open("w+b") as target:
                size = tier_snapshot.write(target, header, frozen)
                if self._driver.encryption_keys is not None:
                    target.seek(0)
                    with self._encrypted.open("wb") as encrypted:
                        size = encrypt_file(target, encrypted, self._driver.encryption_keys)
            path = self._path if self._driver.encryption_keys is None else self._encrypted
            with suppress(PreconditionFailed):  # another leader wrote this very state
                self._store.put_if_absent(snapshot_key(header.cluster_id, header.applied_index), Path(path))
        finally:
            self._path.unlink(missing_ok=True)
            self._encrypted.unlink(missing_ok=True)
        self._forget_old(self._store, header.cluster_id)
        return size

    def _forget_old(self, store: ObjectStore, cluster_id: str) -> None:
        """Keep the last ones. A snapshot that cannot be deleted now is deleted after the next one."""
        with suppress(RangelogError):
            keys = [each.key for each in store.list(snapshot_prefix(cluster_id)) if parse_snapshot_key(each.key)]
            for key in sorted(keys)[: -self._driver.settings.tier_snapshot_count]:
                store.delete(key)
