"""The identity of a data directory. It is created with the directory, so a wiped or replaced one has another identity.

`incarnation` is drawn once; `boot` is raised and flushed before the server registers or serves, so the placement driver
detects a directory that was rolled back to an older copy: its count is lower, or belongs to another process. `salt` marks
the entries of this directory's log.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import google_crc32c

from rangelog_core.errors import ConfigInvalid, Corruption, UnsupportedVersion
from rangelog_core.versions import VersionRange, unsupported
from rangelog_server.wal.io import Io, replace_file
from rangelog_server_common.data_directory import lock_directory

_FILE = "identity.json"
IDENTITY_VERSIONS = VersionRange(1, 1)


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The content of identity.json."""

    name: str
    incarnation: int
    boot: int
    salt: int


def pack_identity(identity: DirectoryIdentity) -> bytes:
    """Return the content of identity.json: the version, the fields, and a checksum of them."""
    fields = {"version": IDENTITY_VERSIONS.highest} | asdict(identity)
    return json.dumps(fields | {"crc": _crc(fields)}).encode()


def unpack_identity(data: bytes) -> DirectoryIdentity:
    """Decode the content of identity.json; without a version or a checksum it is of version 1.

    In every version it is a JSON object whose `crc` is that of all its other fields. Raises Corruption, UnsupportedVersion.
    """
    try:
        fields = json.loads(data)
        crc = fields.pop("crc", None)
        whole = crc in (None, _crc(fields))
        version = fields.pop("version", 1)
        if whole and type(version) is int and version > IDENTITY_VERSIONS.highest:
            raise unsupported(_FILE, version, IDENTITY_VERSIONS, "this server")
        if version != IDENTITY_VERSIONS.highest:
            raise ValueError(version)
        identity = DirectoryIdentity(**fields)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Corruption("not an identity") from error
    kinds = (str, int, int, int)
    if tuple(map(type, astuple(identity))) != kinds or not 0 < identity.incarnation < 1 << 64 or identity.boot < 1:
        raise Corruption("not an identity of this version")
    if not 0 <= identity.salt < 1 << 32 or not whole:
        raise Corruption("the identity's checksum does not fit")
    return identity


def _crc(fields: dict[str, object]) -> int:
    return int(google_crc32c.value(json.dumps(fields, sort_keys=True).encode()))


class DataDirectory:
    """A data directory, locked for this process as long as it lives."""

    def __init__(self, path: Path, io: Io | None = None) -> None:
        """Make the directory if it is missing, mode 0700, and lock it. Raises Unavailable, PreconditionFailed."""
        self.path = path
        self._io = io or Io()
        self._lock = lock_directory(path)

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)

    @property
    def log_directory(self) -> Path:
        """The directory of the write-ahead log."""
        return self.path / "wal"

    @property
    def temporary_directory(self) -> Path:
        """The directory in which objects are built; emptied at each start."""
        return self.path / "tmp"

    @property
    def manifest_directory(self) -> Path:
        """The directory with one empty file for each stream whose manifest is to be written."""
        return self.path / "manifests"

    def boot(self, name: str) -> DirectoryIdentity:
        """Return the identity for this start, with `boot` raised and flushed.

        Raises ConfigInvalid, Corruption; UnsupportedVersion before anything is changed.
        """
        found = self._read()
        if found is None:
            self._set_aside_log("unidentified")
            identity = DirectoryIdentity(name, secrets.randbits(63) + 1, 1, secrets.randbits(32))
        elif found.name != name:
            raise ConfigInvalid(f"{self.path} belongs to range server {found.name!r}, not {name!r}: check data_dir")
        else:
            identity = DirectoryIdentity(found.name, found.incarnation, found.boot + 1, found.salt)
        self.log_directory.mkdir(mode=0o700, exist_ok=True)
        self.temporary_directory.mkdir(mode=0o700, exist_ok=True)
        self.manifest_directory.mkdir(mode=0o700, exist_ok=True)
        for left in self.temporary_directory.iterdir():
            left.unlink()
        replace_file(self._io, self.path / _FILE, [pack_identity(identity)])
        return identity

    def set_aside(self, identity: DirectoryIdentity) -> Path:
        """Move this incarnation's log aside, so that the next boot creates another incarnation. Returns the log's new path.

        The identity is removed first, durably: beside an empty log it would be an incarnation that lost all its records.
        """
        (self.path / _FILE).unlink(missing_ok=True)
        self._io.sync_directory(self.path)
        target = self._set_aside_log(f"{identity.incarnation:016x}-{identity.boot}")
        self._io.sync_directory(self.path)
        return target

    def _set_aside_log(self, label: str) -> Path:
        target = self.path / f"set-aside-{label}"
        if self.log_directory.exists():
            number = 0
            while target.exists():
                number += 1
                target = self.path / f"set-aside-{label}.{number}"
            self.log_directory.rename(target)
        return target

    def _read(self) -> DirectoryIdentity | None:
        try:
            data = (self.path / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return unpack_identity(data)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{self.path}: {error.message}") from None
        except Corruption as error:
            raise Corruption(
                f"{self.path / _FILE} is damaged: move the data directory away to start as a new server"
            ) from error
