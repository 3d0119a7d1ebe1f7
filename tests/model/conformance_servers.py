"""One replica of the seal model as the product has it: a store over its own log on a disk in memory.

`append` without `flush` leaves it in memory; `lose_power` forgets that, or tears the write that would have held it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from rangelog.protocol.proof import Told
from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Corruption
from rangelog_core.ids import ReplicaId
from rangelog_proto.v1 import pd_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch, Replica, SealAnswer
from rangelog_server.ranges.report import report_of
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, split_lsn
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 8 * 1024
STREAM, INDEX = 1, 0


def record(offset: int) -> bytes:
    """Return the one record at an offset as a batch of its own."""
    return batch(offset, [b"record %d" % offset], stream_id=STREAM, range_index=INDEX)


class Server:
    """See the module. Calls raise what the product raises."""

    def __init__(self) -> None:
        self._disk = LogDisk()
        self._store = self._opened()

    def _opened(self) -> Store:
        store = Store(Wal(Path("/log"), 1, io=self._disk, segment_bytes=SEGMENT_BYTES), cache_bytes=0)
        store.open()
        return store

    @property
    def _hosted(self) -> HostedReplica | None:
        return self._store.replicas.get((STREAM, INDEX))

    @property
    def core(self) -> Replica | None:
        """The replica, once it was heard of."""
        return self._hosted.core if self._hosted is not None else None

    # ---- what clients ask

    def append(self, offset: int, epoch: int, *, recovery: bool = False) -> None:
        """Take a record; it is durable after `flush`."""
        data = record(offset)
        message = SimpleNamespace(
            stream_id=STREAM,
            range_index=INDEX,
            epoch=epoch,
            start_offset=0,
            confirm_offset=0,
            recovery=recovery,
            memory=False,
        )
        self._store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)

    def flush(self) -> None:
        """Make durable what was taken."""
        self._store.wal.kick()

    def seal(self, epoch: int) -> SealAnswer:
        """Fence, flush, answer."""
        answers: list[SealAnswer] = []
        self._store.seal(STREAM, INDEX, epoch, 0, lambda hosted: answers.append(hosted.core.seal_answer()))
        assert not answers, "no answer before the fence is durable"
        self.flush()
        return answers[0]

    def commit_end(self, end_offset: int, epoch: int) -> None:
        """Learn the end from a client."""
        self._store.commit_end(STREAM, INDEX, 0, end_offset, epoch, lambda hosted: None)
        self.flush()

    def confirm(self, confirm_offset: int) -> int:
        """Hear from the writer what is acked; return up to where a reader is served."""
        hosted = self._hosted
        if hosted is None:
            return 0
        hosted.core.confirm(1, confirm_offset)
        return hosted.core.readable_end()

    def told(self, replica: ReplicaId) -> Told:
        """Answer a reader that gathers a proof. Raises Corruption."""
        core = self.core
        if core is None:  # never heard of the range: it truthfully holds nothing
            return Told(replica, 0, 0)
        core.check_fetch(core.start_offset, core.readable_end())
        return Told(replica, core.durable_offset, core.confirm_offset, core.sealed_end_offset)

    # ---- what befalls it

    def lose_power(self) -> None:
        """Nothing is left of what was not flushed."""
        self._disk.kill()
        self._store = self._opened()

    def tear(self) -> None:
        """Power is lost in the middle of the write: its first bytes are there, the others are not."""
        before = self._disk.copy()
        self.flush()
        for name in before.names:
            old, new = before.content(name), self._disk.content(name)
            start = next((at for at, (one, other) in enumerate(zip(old, new, strict=True)) if one != other), None)
            if start is not None:
                new[start + 8 :] = old[start + 8 :]
        self._disk.settle()
        self.lose_power()

    def rot(self, keep: int) -> bool:
        """Damage everything from a record on; return whether that is what the log holds last."""
        hosted = self._hosted
        assert hosted is not None
        sequence, position = split_lsn(hosted.places[keep] - ENTRY_HEADER_BYTES)
        if hosted.state_lsn > hosted.places[keep] or self._store.wal.current_sequence != sequence:
            return False  # its own state stands behind it, so that this would be damage in the middle
        self.flush()
        content = self._disk.content(self._name(sequence))
        content[position + 4 : position + 60] = bytes(byte ^ 0xFF for byte in content[position + 4 : position + 60])
        content[position + 60 :] = bytes(len(content) - position - 60)
        self._disk.settle()
        self.lose_power()
        return True

    def damage(self) -> None:
        """A reader finds that nothing here can be trusted."""
        if self._hosted is None:
            self._store.host(self._store.new_core(STREAM, INDEX, 0, 1))
        assert self._hosted is not None
        self._store.quarantine(self._hosted, "a checksum that does not fit")
        self.flush()

    # ---- a sealed range: what directives do

    def hold(self, count: int, end_offset: int) -> None:
        """Be the replica of a range sealed at `end_offset` with its first `count` records."""
        for offset in range(count):
            self.append(offset, 1)
        self.learn_end(end_offset)

    def learn_end(self, end_offset: int) -> None:
        """Learn the end from the placement driver."""
        self._store.commit_end(STREAM, INDEX, 0, end_offset, 1, lambda hosted: None, by_placement_driver=True)
        self.flush()

    def drop(self) -> None:
        """Forget the replica."""
        self._store.drop(STREAM, INDEX, lambda: None)
        self.flush()

    def repair(self, source: Server, end_offset: int) -> None:
        """Take one more record from another server. Raises Corruption when that one's is rotten."""
        self.learn_end(end_offset)
        hosted = self._hosted
        assert hosted is not None
        data = source.read(hosted.core.end_offset)
        self._store.repair(hosted, [NewBatch(check_batch(data), batch_crc(data), data)], lambda: None)
        self.flush()

    def read(self, offset: int) -> bytes:
        """Return the batch at an offset. Raises Corruption, and has quarantined the replica then."""
        hosted = self._hosted
        assert hosted is not None
        try:
            number = hosted.core.batch_number(offset)
            return read_batches(self._store.wal, make_plan(hosted, number, number + 1))[0]
        except Corruption as error:
            self._store.quarantine(hosted, error.message)
            self.flush()
            raise

    def rot_unseen(self, offset: int) -> None:
        """Flip bits of a record that is not looked at now."""
        hosted = self._hosted
        assert hosted is not None
        sequence, position = split_lsn(hosted.places[hosted.core.batch_number(offset)])
        at = position + 70
        self._disk.content(self._name(sequence))[at] ^= 0x10

    def report(self) -> pd_pb2.ReplicaReport | None:
        """Return what it says of the replica."""
        return report_of(self._hosted) if self._hosted is not None else None

    def _name(self, sequence: int) -> str:
        segment = self._store.wal.segments[sequence]
        return next(name for name, file in self._disk.names.items() if file is self._disk.file(segment.fd))

    # ---- what it holds

    def seen(self) -> tuple[int, int, int, DiskTrust]:
        """Return the log's end, how much of it is durable, the epoch of the fence or 0, and the health."""
        core = self.core
        if core is None:
            return 0, 0, 0, DiskTrust.DOUBTFUL if self._store.server.doubt_unknown else DiskTrust.SOUND
        return core.end_offset, core.durable_offset, core.epoch if core.fenced else 0, core.trust
