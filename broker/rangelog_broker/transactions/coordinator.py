"""The coordinator of transactions: a machine on a journal (T5, T1).

What holds (the rules are those that the exhaustive model finds necessary):
- A transaction is decided once, as its entry is applied: committed with the list of all participants, or aborted. What is
  decided never changes; an expiry that comes after the request to commit changes nothing.
- No commit is decided before the earlier transactions of its transactional id are merged everywhere: until then it waits. The
  next one may be begun and staged meanwhile.
- Nothing of a commit is forgotten before all participants have merged. The last outcome of a transactional id is kept until its
  next transaction begins.
- The number of a transaction rises through all epochs of its id, and an id that was forgotten gets another producer id: a late
  order or staged batch is never taken for another transaction's.
  "Unknown" is an answer only of a linearizable read: owners drop what they staged by this answer, and by nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    Overloaded,
    PreconditionFailed,
    ProducerFenced,
    TransactionNotFound,
    UnsupportedVersion,
)
from rangelog_core.ids import check_name
from rangelog_core.limits import KIB
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1.transaction_pb2 import TransactionState

UNKNOWN = transaction_pb2.TRANSACTION_STATE_UNKNOWN
OPEN = transaction_pb2.TRANSACTION_STATE_OPEN
WAITING = transaction_pb2.TRANSACTION_STATE_WAITING
COMMITTING = transaction_pb2.TRANSACTION_STATE_COMMITTING
COMMITTED = transaction_pb2.TRANSACTION_STATE_COMMITTED
ABORTED = transaction_pb2.TRANSACTION_STATE_ABORTED

TIMEOUT_MS_MAX = 24 * 3_600_000
PARTICIPANTS_MAX = 1_000
IDS_MAX = 100_000
IDLE_MS = 7 * 24 * 3_600_000
"""An id without an unfinished transaction is forgotten when it was not used for so long."""
_PIECE_BYTES = 256 * KIB
_HEAD, _IDS = b"H", b"I"

ParticipantKey = tuple[int, int, str]


@dataclass(slots=True)
class TransactionEntry:
    """One transaction. `participants`: who has merged, of a commit."""

    epoch: int
    number: int
    state: TransactionState
    participants: dict[ParticipantKey, bool] = field(default_factory=dict)
    maps: dict[int, int] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to decide or to merge."""
        return self.state in (COMMITTED, ABORTED)


@dataclass(slots=True)
class TransactionalId:
    """The transactions of one id: the latest, and before it at most one whose merge is under way."""

    producer_id: int
    epoch: int
    timeout_ms: int
    number: int = 0
    transactions: list[TransactionEntry] = field(default_factory=list)
    used_ms: int = 0

    @property
    def latest(self) -> TransactionEntry | None:
        """The latest one."""
        return self.transactions[-1] if self.transactions else None

    def find(self, number: int) -> TransactionEntry | None:
        """Return a transaction by its number, which rises through all epochs; None once it is forgotten."""
        return next((each for each in self.transactions if each.number == number), None)


class TransactionCoordinator:
    """See the module."""

    def __init__(self, first_producer_id: int = 1, producer_id_step: int = 1) -> None:
        """The producer ids of this coordinator: others have other ones, so that no shard takes one program for another."""
        self.level = 0
        self._producer_id_step = producer_id_step
        self.on_changed: Callable[[str], object] = lambda transactional_id: None
        """Called with the id whose transactions a command may have changed."""
        self._ids: OrderedDict[str, TransactionalId] = OrderedDict()  # the one that was used last is last
        self._next_producer_id = first_producer_id

    # ---- JournalMachine

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return 100 * len(self._ids)

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a TransactionCommand; return a TransactionResult.

        Raises UnsupportedVersion, InvalidArgument, TransactionNotFound, ProducerFenced, PreconditionFailed, Overloaded.
        """
        try:
            message = transaction_pb2.TransactionCommand.FromString(command)
        except DecodeError as error:
            raise InvalidArgument("a command of a transaction does not decode") from error
        action = message.WhichOneof("action")
        if action is None:
            raise UnsupportedVersion("a command of a transaction with an unknown action: upgrade this broker")
        self._forget(now_ms)
        if action == "init":
            return self._init(message.init, now_ms)
        name = getattr(message, action).name
        of = self._of(name)
        if action == "merged":
            self._merged(of, name, message.merged.participant)
        elif action == "expire":
            self._abort_open(of, name)
        else:
            self._check_epoch(of, name)
            if action == "begin":
                self._begin(of, name)
            elif action == "commit":
                self._commit(of, name, message.commit)
            else:
                self._abort(of, name)
        of.used_ms = now_ms
        self._ids.move_to_end(name.transactional_id)
        self.on_changed(name.transactional_id)
        return self.view(name).SerializeToString()

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        rows = [_packed(name, of) for name, of in self._ids.items()]
        return _pieces(transaction_pb2.TransactionsHead(next_producer_id=self._next_producer_id), rows)

    def restore_begin(self) -> None:
        """See JournalMachine."""
        self._ids = OrderedDict()

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine."""
        try:
            if piece[:1] == _HEAD:
                head = transaction_pb2.TransactionsHead.FromString(piece[1:])
                self._next_producer_id = head.next_producer_id
            elif piece[:1] == _IDS:
                for size, at in _framed(piece):
                    state = transaction_pb2.TransactionalIdState.FromString(piece[at : at + size])
                    self._ids[state.transactional_id] = _unpacked(state)
            else:
                raise Corruption("a snapshot of transactions has a piece of an unknown kind")
        except DecodeError as error:
            raise Corruption("a snapshot of transactions does not decode") from error

    def restore_end(self) -> None:
        """See JournalMachine."""

    # ---- reads

    def view(self, name: transaction_pb2.TransactionName) -> transaction_pb2.TransactionResult:
        """Return what is known of a transaction, with its epoch. UNKNOWN is only to be believed in a linearizable read."""
        of = self._ids.get(name.transactional_id)
        found = of.find(name.number) if of is not None and of.producer_id == name.producer_id else None
        result = transaction_pb2.TransactionResult(producer_id=name.producer_id, epoch=name.epoch, number=name.number)
        if found is not None:
            result.state, result.epoch = found.state, found.epoch
            if found.state == COMMITTING:
                result.to_merge.extend(_participant(key) for key, merged in found.participants.items() if not merged)
                for topic_id, version in found.maps.items():
                    result.maps.add(topic_id=topic_id, map_version=version)
        return result

    def of(self, transactional_id: str) -> TransactionalId | None:
        """Return what is known of a transactional id. Change nothing in it."""
        return self._ids.get(transactional_id)

    def ids(self) -> list[str]:
        """Return all transactional ids."""
        return list(self._ids)

    def unfinished(self) -> Iterator[tuple[str, TransactionEntry]]:
        """Yield every transaction that is open, waiting or to be merged, for a new owner to go on with."""
        for name, of in self._ids.items():
            for transaction in of.transactions:
                if not transaction.is_finished:
                    yield name, transaction

    # ---- commands

    def _init(self, init: transaction_pb2.TransactionInit, now_ms: int) -> bytes:
        check_name("transactional id", init.transactional_id)
        if not 0 < init.timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidArgument(f"a timeout of {init.timeout_ms} ms; 1 to {TIMEOUT_MS_MAX} are allowed")
        of = self._ids.get(init.transactional_id)
        if of is None:
            if len(self._ids) >= IDS_MAX:
                raise Overloaded(f"this coordinator has {IDS_MAX} transactional ids, its limit")
            of = self._ids[init.transactional_id] = TransactionalId(self._next_producer_id, 0, 0)
            self._next_producer_id += self._producer_id_step
        latest = of.latest
        if latest is not None and latest.state == OPEN:
            latest.state = ABORTED
        of.epoch += 1
        of.timeout_ms, of.used_ms = init.timeout_ms, now_ms
        self._ids.move_to_end(init.transactional_id)
        return transaction_pb2.TransactionResult(
            producer_id=of.producer_id, epoch=of.epoch, number=of.number
        ).SerializeToString()

    @staticmethod
    def _begin(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
        latest = of.latest
        if latest is not None and (latest.epoch, latest.number, latest.state) == (name.epoch, name.number, OPEN):
            return
        if name.number != of.number + 1:
            raise PreconditionFailed(
                f"the next transaction of this id has the number {of.number + 1}, not {name.number}"
            )
        if latest is not None and latest.state in (OPEN, WAITING):
            raise PreconditionFailed(f"transaction {latest.number} is not decided yet")
        of.number = name.number
        of.transactions = [each for each in of.transactions if not each.is_finished]
        of.transactions.append(TransactionEntry(name.epoch, name.number, OPEN))

    @staticmethod
    def _commit(
        of: TransactionalId, name: transaction_pb2.TransactionName, commit: transaction_pb2.TransactionCommit
    ) -> None:
        found = _known(of, name)
        if found.state in (WAITING, COMMITTING, COMMITTED):
            return
        if found.state == ABORTED:
            raise PreconditionFailed(f"transaction {name.number} was aborted: by a call, or it was open for too long")
        if len(commit.participants) > PARTICIPANTS_MAX:
            raise InvalidArgument(f"{len(commit.participants)} participants; the limit is {PARTICIPANTS_MAX}")
        found.participants = {(each.topic_id, each.shard_id, each.group): False for each in commit.participants}
        found.maps = {each.topic_id: each.map_version for each in commit.maps}
        found.state = WAITING
        _decide(of)

    @staticmethod
    def _abort(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
        found = _known(of, name)
        if found.state not in (OPEN, ABORTED):
            raise PreconditionFailed(f"transaction {name.number} is committed, or about to be")
        found.state = ABORTED

    @staticmethod
    def _abort_open(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
        found = _find(of, name)
        if found is not None and found.state == OPEN:
            found.state = ABORTED

    @staticmethod
    def _merged(
        of: TransactionalId, name: transaction_pb2.TransactionName, participant: transaction_pb2.Participant
    ) -> None:
        found = _find(of, name)
        key = participant.topic_id, participant.shard_id, participant.group
        if found is not None and found.state == COMMITTING and key in found.participants:
            found.participants[key] = True
            if all(found.participants.values()):
                found.state = COMMITTED
                _decide(of)

    # ---- inside

    def _of(self, name: transaction_pb2.TransactionName) -> TransactionalId:
        of = self._ids.get(name.transactional_id)
        if of is None or of.producer_id != name.producer_id:
            raise TransactionNotFound(f"the transactional id {name.transactional_id!r} is not known: initialise it")
        return of

    @staticmethod
    def _check_epoch(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
        if name.epoch != of.epoch:
            raise ProducerFenced(f"a later instance of {name.transactional_id!r} has epoch {of.epoch}", epoch=of.epoch)

    def _forget(self, now_ms: int) -> None:
        """Forget ids that are idle: those that were used first are first."""
        while self._ids:
            name, of = next(iter(self._ids.items()))
            if now_ms - of.used_ms < IDLE_MS:
                return
            if all(each.is_finished for each in of.transactions):
                del self._ids[name]
            else:
                of.used_ms = now_ms  # looked at again later
                self._ids.move_to_end(name)


def _decide(of: TransactionalId) -> None:
    """Commit the one that waits, if all before it are finished."""
    for transaction in of.transactions:
        if transaction.state == WAITING:
            transaction.state = COMMITTING if transaction.participants else COMMITTED
        if not transaction.is_finished:
            return


def _find(of: TransactionalId, name: transaction_pb2.TransactionName) -> TransactionEntry | None:
    for each in of.transactions:
        if (each.epoch, each.number) == (name.epoch, name.number):
            return each
    return None


def _known(of: TransactionalId, name: transaction_pb2.TransactionName) -> TransactionEntry:
    found = _find(of, name)
    if found is None:
        raise TransactionNotFound(f"transaction {name.number} of {name.transactional_id!r} is not known")
    return found


def _participant(key: ParticipantKey) -> transaction_pb2.Participant:
    topic_id, shard_id, group = key
    return transaction_pb2.Participant(topic_id=topic_id, shard_id=shard_id, group=group)


def _packed(name: str, of: TransactionalId) -> bytes:
    state = transaction_pb2.TransactionalIdState(
        transactional_id=name,
        producer_id=of.producer_id,
        epoch=of.epoch,
        number=of.number,
        timeout_ms=of.timeout_ms,
        used_ms=of.used_ms,
    )
    for each in of.transactions:
        row = state.transactions.add(epoch=each.epoch, number=each.number, state=each.state)
        row.participants.extend(_participant(key) for key in each.participants)
        row.merged.extend(each.participants.values())
        for topic_id, version in each.maps.items():
            row.maps.add(topic_id=topic_id, map_version=version)
    return state.SerializeToString()


def _unpacked(state: transaction_pb2.TransactionalIdState) -> TransactionalId:
    if any(len(row.participants) != len(row.merged) for row in state.transactions):
        raise Corruption("a snapshot of transactions has participants of unknown standing")
    rows = [
        TransactionEntry(
            row.epoch,
            row.number,
            row.state,
            {(each.topic_id, each.shard_id, each.group): merged for each, merged in zip(row.participants, row.merged)},
            {each.topic_id: each.map_version for each in row.maps},
        )
        for row in state.transactions
    ]
    return TransactionalId(state.producer_id, state.epoch, state.timeout_ms, state.number, rows, state.used_ms)


def _pieces(head: transaction_pb2.TransactionsHead, rows: list[bytes]) -> Iterator[bytes]:
    yield _HEAD + head.SerializeToString()
    parts, size = [_IDS], 0
    for row in rows:
        if size + len(row) > _PIECE_BYTES and size:
            yield b"".join(parts)
            parts, size = [_IDS], 0
        parts += (len(row).to_bytes(4, "little"), row)
        size += len(row) + 4
    if size:
        yield b"".join(parts)


def _framed(piece: bytes) -> Iterator[tuple[int, int]]:
    """Yield (size, position) of each row of a piece. Raises Corruption."""
    at = 1
    while at < len(piece):
        size = int.from_bytes(piece[at : at + 4], "little")
        if at + 4 + size > len(piece):
            raise Corruption("a snapshot of transactions is cut short")
        yield size, at + 4
        at += 4 + size
