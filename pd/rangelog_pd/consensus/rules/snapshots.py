"""Snapshots of one member: written by a thread, sent to peers in chunks, received whole and checked.

What holds: the state is frozen under the lock on the tick thread, encoded, written and flushed on another; the journal is
trimmed only after that; a received snapshot replaces the member's own only if its checksum fits; a snapshot that cannot be
restored stops the member.
Camel-case names are pysyncobj's, whose `Serializer` this module replaces.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangelog_core.errors import Corruption, ProtocolViolation, UnsupportedVersion
from rangelog_pd.consensus.files import snapshot_file
from rangelog_pd.consensus.files.configuration import Configuration
from rangelog_pd.consensus.files.disk import REAL_FILES, Files, read_whole
from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.files.snapshot_file import SNAPSHOT_BYTES_MAX, Snapshot
from rangelog_pd.consensus.interface import StateMachine
from rangelog_pd.consensus.network.messages import SNAPSHOT_CHUNK_BYTES

log = logging.getLogger(__name__)

_NOT_RUNNING, _RUNNING, _DONE, _FAILED = 0, 1, 2, 3  # pysyncobj's SERIALIZER_STATE
RETRY_S = 10.0
"""The pause after a snapshot could not be written (a full disk): the journal holds all entries meanwhile."""


@dataclass
class _Sending:
    data: bytes
    sent_bytes: int = 0


class Snapshots:
    """The snapshots of one member, owned by the tick thread."""

    def __init__(
        self, path: Path, state_machine: StateMachine, lock: threading.Lock, *, files: Files = REAL_FILES
    ) -> None:
        """Read the file. Raises Corruption when it is damaged."""
        self._path = path
        self._files = files
        self._state_machine = state_machine
        self._lock = lock
        self.loaded = snapshot_file.read(path, files=files)
        self.configuration_at: Callable[[int], tuple[Configuration | None, int]] = lambda _index: (None, 0)
        """Returns the configuration that a snapshot up to an index has, and the index of its entry."""
        self.failure: BaseException | None = None
        self._writer: threading.Thread | None = None
        self._writer_failed = False
        self._serialize_id = 0
        self._retry_at_s = 0.0
        self._sending: dict[str, _Sending] = {}
        self._receiving: bytearray | None = None

    def __fspath__(self) -> str:
        return os.fspath(self._path)

    # --- taking one

    def serialize(self, data: tuple[Any, ...], id_: int) -> None:
        """Start a snapshot at the applied index."""
        if self._writer is not None or time.monotonic() < self._retry_at_s:
            return
        _, last, previous, _ = data
        with self._lock:
            frozen = self._state_machine.freeze()
        self._serialize_id = id_
        self._writer_failed = True  # until it is written
        arguments = (JournalEntry(*previous), JournalEntry(*last), frozen, *self.configuration_at(last[1]))
        self._writer = threading.Thread(target=self._write, args=arguments, name="raft-snapshot", daemon=True)
        self._writer.start()

    def checkSerializing(self) -> tuple[int, int | None]:
        """Return the state of the snapshot; the library trims the journal once it is done."""
        if self._writer is None:
            return _NOT_RUNNING, None
        if self._writer.is_alive():
            return _RUNNING, self._serialize_id
        self._writer = None
        if self._writer_failed:
            self._retry_at_s = time.monotonic() + RETRY_S
            return _FAILED, self._serialize_id
        return _DONE, self._serialize_id

    def _write(
        self,
        previous: JournalEntry,
        last: JournalEntry,
        frozen: Iterable[bytes],
        configuration: Configuration | None,
        index: int,
    ) -> None:
        try:
            snapshot = Snapshot(previous, last, b"".join(frozen), configuration, index)
            snapshot_file.write(self._path, snapshot, files=self._files)
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error)
        else:
            self._writer_failed = False

    def wait(self) -> None:
        """Wait until no snapshot is being written."""
        if self._writer is not None:
            self._writer.join()

    # --- loading one

    def deserialize(self) -> tuple[None, JournalEntry, JournalEntry, None]:
        """Restore the state. The library ignores errors of this call, so they are kept in `failure`."""
        try:
            snapshot = self.loaded or snapshot_file.read(self._path, files=self._files)
            self.loaded = None
            if snapshot is None:
                raise Corruption(f"{self._path} is missing")
            with self._lock:
                self._state_machine.restore(snapshot.state)
        except BaseException as error:
            self.failure = error
            raise
        return None, snapshot.last, snapshot.previous, None

    # --- sending one

    def next_chunk(self, peer: str) -> tuple[bytes, bool, bool, int] | None:
        """Return (data, first, last, last index) of the next chunk for `peer`; None where there is no snapshot."""
        sending = self._sending.get(peer)
        if sending is None:
            data = read_whole(self._files, self._path, bytes_max=SNAPSHOT_BYTES_MAX)
            if data is None:
                return None
            sending = self._sending[peer] = _Sending(data)
        data = sending.data[sending.sent_bytes : sending.sent_bytes + SNAPSHOT_CHUNK_BYTES]
        first = sending.sent_bytes == 0
        sending.sent_bytes += len(data)
        last = sending.sent_bytes == len(sending.data)
        if last:
            del self._sending[peer]
        return data, first, last, snapshot_file.last_index_of(sending.data)

    def cancelTransmisstion(self, peer: object) -> None:
        """Start from the beginning with the next chunk."""
        self._sending.pop(str(peer), None)

    # --- receiving one

    def receive(self, data: bytes, *, first: bool, last: bool) -> Snapshot | None:
        """Add one chunk; return the whole snapshot after the last one. Raises ProtocolViolation."""
        if first:
            self._receiving = bytearray()
        if self._receiving is None:
            return None
        if len(self._receiving) + len(data) > SNAPSHOT_BYTES_MAX:
            self._receiving = None
            raise ProtocolViolation("the snapshot is too large")
        self._receiving += data
        if not last:
            return None
        whole, self._receiving = bytes(self._receiving), None
        try:
            return snapshot_file.decode(whole, source="the leader's snapshot")
        except (Corruption, UnsupportedVersion) as error:
            raise ProtocolViolation(str(error)) from error

    def forget_received(self) -> None:
        """Drop the chunks of an incomplete snapshot, since the leader's connection is closed."""
        self._receiving = None

    def install(self, snapshot: Snapshot) -> None:
        """Store a received snapshot, durably; `deserialize` is called next. Raises OSError."""
        self.wait()
        snapshot_file.write(self._path, snapshot, files=self._files)
        self.loaded = snapshot
        self._sending.clear()

    def setTransmissionData(self, installed: object) -> bool:
        """Return whether a snapshot is complete: whether `install` was called, or the chunk was a heartbeat."""
        return installed is True
