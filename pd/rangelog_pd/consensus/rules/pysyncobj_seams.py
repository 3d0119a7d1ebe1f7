"""The interfaces of pysyncobj that rangelog replaces: checked, and its pickle disabled.

pysyncobj 0.3.17 elects, counts and applies well, but its journal, snapshots and transport do not suffice (no flush, no
checksum, pickles from any peer). rangelog replaces them. Some of these interfaces are private names, so the version is
pinned to those whose source was read and which pass the crash tests.

What holds: after `prepare`, pysyncobj's pickle functions raise for every caller; no code in this process can reach
`pickle.loads` through the library.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pysyncobj.journal  # type: ignore[import-untyped, unused-ignore]
import pysyncobj.pickle  # type: ignore[import-untyped, unused-ignore]
import pysyncobj.syncobj  # type: ignore[import-untyped, unused-ignore]
from pysyncobj.version import VERSION  # type: ignore[import-untyped, unused-ignore]

from rangelog_core.errors import InternalError

TESTED_VERSIONS = ("0.3.17",)

_PRIVATE_NAMES = (
    "applyLogEntries",
    "commandsWaitingCommit",
    "connectedNodes",
    "deleteEntriesTo",
    "doApplyCommand",
    "lastResponseTime",
    "loadDumpFile",
    "noopIDx",
    "onMessageReceived",
    "otherNodes",
    "raftElectionDeadline",
    "raftLeader",
    "raftLog",
    "raftMatchIndex",
    "raftNextIndex",
    "readonlyNodes",
    "sendAppendEntries",
    "setState",
)
"""The private names of `SyncObj`, without the mangling, that `Raft` overrides or reads."""


def private(name: str) -> str:
    """Return the mangled name of a private attribute of SyncObj."""
    return f"_SyncObj__{name}"


def prepare() -> None:
    """Check the version and replace the interfaces. Idempotent. Raises InternalError for an untested version."""
    if VERSION not in TESTED_VERSIONS:
        raise InternalError(f"pysyncobj {VERSION} was never tested with rangelog: install one of {TESTED_VERSIONS}")
    known = set(pysyncobj.syncobj.SyncObj.__init__.__code__.co_names) | set(dir(pysyncobj.syncobj.SyncObj))
    missing = [name for name in _PRIVATE_NAMES if private(name) not in known]
    if missing:
        raise InternalError(f"this pysyncobj lacks {', '.join(missing)}: it is not the released {VERSION}")
    for module in (pysyncobj.pickle, pysyncobj.journal):
        for name in ("loads", "dumps", "load", "dump"):
            if hasattr(module, name):
                setattr(module, name, _refuse_pickle)
    pysyncobj.syncobj.createJournal = _given_journal
    pysyncobj.syncobj.Serializer = _given_snapshots


def _refuse_pickle(*_: Any, **__: Any) -> NoReturn:
    raise InternalError("pickle is not used in rangelog")


def _given_journal(journal: Any) -> Any:
    """Return the journal, which the configuration has as `journalFile`."""
    return journal


def _given_snapshots(snapshots: Any, *_: Any) -> Any:
    """Return the snapshot store, which the configuration has as `fullDumpFile`."""
    return snapshots
