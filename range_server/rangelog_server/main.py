"""`run`: one range server from its settings until a signal stops it."""

from __future__ import annotations

import sys

import structlog
import uvloop

from rangelog_core.allocator import keep_large_blocks
from rangelog_core.errors import ConfigInvalid, DirectoryGivenUp, EncryptionKeyMissing, RangelogError
from rangelog_core.exit_codes import EXIT_DIRECTORY_GIVEN_UP
from rangelog_server.agent.registration import RolledBack
from rangelog_server.identity import DataDirectory, DirectoryIdentity
from rangelog_server.ranges.store import Store
from rangelog_server.runtime import Runtime
from rangelog_server.settings import RangeServerSettings
from rangelog_server.wal.encryption import LogKeys
from rangelog_server.wal.log import Wal
from rangelog_server_common.garbage import collector_off, spare_long_lived
from rangelog_server_common.logging import log_to_stderr
from rangelog_server_common.metrics.loop_holds import HOLDS
from rangelog_server_common.process import allow_open_files, fail, remove_endpoint, stop_on_signals
from rangelog_tier.encryption_keys import key_provider, keys_of_environment

_log = structlog.get_logger("range_server")


def run(settings: RangeServerSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. An error is printed as one line."""
    log_to_stderr("range-server", settings.name, log_format=settings.log_format, secrets=(settings.token,))
    allow_open_files()
    keep_large_blocks()
    try:
        directory = DataDirectory(settings.data_dir)
    except RangelogError as error:
        return fail("range-server", error.message)
    try:
        remove_endpoint(settings.data_dir)  # of a process that was killed
        while True:
            identity = directory.boot(settings.name)
            store = open_store(settings, directory, identity)
            try:
                uvloop.run(_serve(settings, directory, identity, store))
                return 0
            except RolledBack as error:
                aside = directory.set_aside(identity)
                _log.error("the data is older than the cluster knows: starting as a new incarnation",
                           said=error.message, set_aside=str(aside))  # fmt: skip
    except EncryptionKeyMissing as error:  # what its log has is not known: it must not start as an empty one
        return fail("range-server", f"ENCRYPTION_KEY_MISSING: {error.message}: the log is left as it is")
    except DirectoryGivenUp as error:
        return fail("range-server", error.message, EXIT_DIRECTORY_GIVEN_UP)
    except RangelogError as error:
        return fail("range-server", error.message)
    except OSError as error:
        return fail("range-server", f"the data directory {settings.data_dir} failed: {error.strerror or error}")
    finally:
        directory.close()


def open_store(settings: RangeServerSettings, directory: DataDirectory, identity: DirectoryIdentity) -> Store:
    """Recover the log. Blocking.

    Raises StorageFull, OSError, UnsupportedVersion; EncryptionKeyMissing, AccessDenied, Unavailable: what encrypted segments
    have cannot be known; ConfigInvalid.
    """
    wal = Wal(
        directory.log_directory,
        identity.salt,
        keys=open_keys(settings, identity),
        segment_bytes=settings.segment_size_bytes,
        capacity_bytes=settings.capacity_bytes,
        direct=settings.direct_io,
    )
    store = Store(wal, cache_bytes=settings.cache_bytes)
    with collector_off():  # these objects stay: searching them for garbage would take half of the time
        replayed = store.open(started_before=identity.boot > 1)
    for problem in replayed.problems:
        _log.error("damage found", problem=problem)
    _log.info("recovered", replicas=len(store.replicas), segments=len(wal.segments), log_end=wal.log_end)
    return store


def open_keys(settings: RangeServerSettings, identity: DirectoryIdentity) -> LogKeys:
    """Return the keys of the log. Raises ConfigInvalid: it is to be encrypted, and no keys are named."""
    if settings.log_keys_dir:
        keys = key_provider(settings.log_keys_dir, None)
    else:
        keys = key_provider(settings.encryption_keys_dir, settings.encryption_kms_key_id) or keys_of_environment()
    if settings.encrypt_log and keys is None:
        raise ConfigInvalid("encrypt_log needs keys: set encryption_keys_dir, encryption_kms_key_id or log_keys_dir")
    return LogKeys(keys, identity.salt, encrypt=settings.encrypt_log)


async def _serve(
    settings: RangeServerSettings, directory: DataDirectory, identity: DirectoryIdentity, store: Store
) -> None:
    runtime = Runtime(settings, directory, identity, store)
    stop_on_signals(runtime.stop)
    HOLDS.begin()
    _tune_process()
    await runtime.run()


def _tune_process() -> None:
    sys.setswitchinterval(0.001)  # the committer waits at most this long for the interpreter after a flush
    spare_long_lived(50_000)
