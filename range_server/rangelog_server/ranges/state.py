"""The encoding of replicas' metadata in the log. One STATE entry holds all of a replica's, so the latest entry counts."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field

from rangelog_core.errors import Corruption
from rangelog_core.versions import VersionRange, unsupported
from rangelog_server.ranges.replica import DiskTrust, Replica

_STATE = struct.Struct("<BBBBQQQQQ")  # version, fenced, sealed, trust, start, epoch, sealed end, born lsn, confirm
_PAIR = struct.Struct("<QQ")
_EPOCH = struct.Struct("<Q")
STATE_VERSIONS = VersionRange(1, 1)
SERVER_STATE_VERSIONS = VersionRange(1, 1)
_TRUSTS = (DiskTrust.SOUND, DiskTrust.DOUBTFUL, DiskTrust.QUARANTINED)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica's metadata. `born_lsn` 0: the entry that holds this is the replica's first."""

    start_offset: int
    epoch: int
    fenced: bool
    sealed_end_offset: int | None
    trust: DiskTrust
    problem: str
    born_lsn: int
    confirm_offset: int


def pack_state(replica: Replica, born_lsn: int) -> bytes:
    """Return the payload of a STATE entry."""
    sealed = replica.sealed_end_offset
    return (
        _STATE.pack(
            STATE_VERSIONS.highest,
            replica.fenced,
            sealed is not None,
            _TRUSTS.index(replica.trust),
            replica.start_offset,
            replica.epoch,
            sealed or 0,
            born_lsn,
            replica.confirm_offset,
        )
        + replica.problem.encode()[:1000]
    )


def unpack_state(payload: bytes) -> ReplicaState:
    """Read the payload of a STATE entry. Raises Corruption, UnsupportedVersion."""
    if payload and payload[0] > STATE_VERSIONS.highest:
        raise unsupported("a replica's state in the log", payload[0], STATE_VERSIONS, "this server")
    if len(payload) < _STATE.size:
        raise Corruption("a replica's state is cut short")
    version, fenced, sealed, trust, start, epoch, end, born, confirm = _STATE.unpack_from(payload)
    if version != STATE_VERSIONS.highest or trust >= len(_TRUSTS):
        raise Corruption(f"a replica's state of version {version}")
    problem = payload[_STATE.size :].decode(errors="replace")
    ends = end if sealed else None
    return ReplicaState(start, epoch, bool(fenced), ends, _TRUSTS[trust], problem, born, confirm)


def restore(replica: Replica, state: ReplicaState) -> None:
    """Apply a state to a replica whose batches were replayed."""
    replica.epoch = max(replica.epoch, state.epoch)
    replica.fenced = state.fenced
    replica.confirm_offset = max(replica.confirm_offset, state.confirm_offset)
    if state.trust is DiskTrust.QUARANTINED:
        replica.quarantine(state.problem)
    elif state.trust is DiskTrust.DOUBTFUL:
        replica.doubt(state.problem)
    if state.sealed_end_offset is not None:
        replica.commit_end(state.sealed_end_offset)


def pack_tombstone(as_of_lsn: int, epoch: int) -> bytes:
    """Return the payload of a TOMBSTONE: all entries of the range before `as_of_lsn` are dropped."""
    return _PAIR.pack(as_of_lsn, epoch)


def unpack_tombstone(payload: bytes) -> tuple[int, int]:
    """Return (as-of lsn, epoch). Raises Corruption."""
    if len(payload) != _PAIR.size:
        raise Corruption(f"a tombstone of {len(payload)} bytes")
    as_of_lsn, epoch = _PAIR.unpack(payload)
    return as_of_lsn, epoch


def pack_epoch(epoch: int) -> bytes:
    """Return the payload of a FLOOR."""
    return _EPOCH.pack(epoch)


def unpack_epoch(payload: bytes) -> int:
    """Return the epoch of a FLOOR. Raises Corruption."""
    if len(payload) != _EPOCH.size:
        raise Corruption(f"a floor of {len(payload)} bytes")
    return int(_EPOCH.unpack(payload)[0])


@dataclass(slots=True)
class ServerState:
    """The metadata of the log as a whole."""

    live: list[int] = field(default_factory=list)  # segments that existed when this was written
    noted: list[int] = field(default_factory=list)  # damage whose consequences were applied durably
    doubt_unknown: bool = False  # unknown ranges may have had a replica here

    def pack(self) -> bytes:
        """Return the payload of a SERVER entry."""
        return json.dumps({"version": SERVER_STATE_VERSIONS.highest} | asdict(self)).encode()

    @classmethod
    def unpack(cls, payload: bytes) -> ServerState:
        """Decode the payload of a SERVER entry; without a version it is of version 1. Raises Corruption, UnsupportedVersion."""
        try:
            fields = json.loads(payload)
            version = fields.pop("version", 1)
            if type(version) is int and version > SERVER_STATE_VERSIONS.highest:
                raise unsupported("the server's state in the log", version, SERVER_STATE_VERSIONS, "this server")
            if version != SERVER_STATE_VERSIONS.highest:
                raise ValueError(version)
            state = cls(**fields)
            whole = all(type(each) is int for each in (*state.live, *state.noted))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Corruption("the server's state cannot be read") from error
        if not whole or type(state.doubt_unknown) is not bool:
            raise Corruption("the server's state is not of this version")
        return state
