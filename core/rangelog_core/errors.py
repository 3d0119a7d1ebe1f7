"""The tree of errors, their stable codes, and how they travel.

    RangelogError
    ├── InvalidArgument             an argument is not valid
    │   ├── RecordTooLarge          above the record or batch limit
    │   ├── ConfigInvalid           unknown key or bad value in a configuration
    │   ├── KeyRangeGap             key ranges leave out keys that they must cover
    │   └── KeyRangeOverlap         key ranges cover keys twice, or keys that are not theirs
    ├── StreamNotFound
    ├── StreamExists
    ├── StreamSealed                its shard has ended: no writer opens it any more; carries its end
    ├── NamespaceNotFound
    ├── NamespaceExists
    ├── TopicNotFound
    ├── TopicExists
    ├── ShardNotFound               the topic never had a shard of this id
    ├── ObjectNotFound              the store has no such object
    ├── RangeNotFound               this server holds no replica of the range
    │   └── RangeDropped            its replica, or that of a later range, was dropped: it is sealed, or its stream deleted
    ├── GroupNotFound
    ├── MemberNotFound              a group's member whose session expired, or that never joined: join again
    ├── MemberFenced                a later instance of the group's member exists
    ├── TransactionNotFound         never begun, or finished so long ago that it was forgotten
    ├── ProducerFenced              a later instance of the producer exists: carries its epoch
    ├── OffsetOutOfRange            beyond the end, or below the start: carries the nearest readable offset
    │   ├── OffsetTrimmed           below the trim offset: the records were removed on request
    │   └── RecordsLost             no copy of the records is left, and an operator has accepted that
    ├── WriterFenced                a later writer owns the stream: carries that writer's epoch
    ├── WriterClosed                used after close
    ├── Unavailable                 retriable: not possible now
    │   ├── NotLeader               carries the leader's address where known
    │   ├── NotOwner                another broker owns the shard or journal, or none does now
    │   ├── AppendTimeout           not acked in time; the append may still be acked
    │   ├── RequestTimeout          no reply in time; the outcome is unknown
    │   ├── NoPlacement             too few range servers to place a range
    │   ├── SealBlocked             too few replicas with a trusted answer: the range stays unsealed
    │   ├── StorageFull             the disk is full; reads continue
    │   ├── HandshakeFailed         plaintext against TLS, or a certificate that is not accepted: the message names it
    │   ├── AccessDenied            the object store refuses the credentials, or the right: never taken for a missing object
    │   ├── Overloaded              a bounded queue is full
    │   └── ClientClosed            not retriable: this client was closed before or during the call
    ├── OutcomeUnknown              a command may or may not have been applied: read the state
    ├── SessionExpired              a journal's proposer was idle for too long: the outcome of its last commands is unknown
    ├── PreconditionFailed          another caller was first (compare-and-set, seal, object key)
    │   ├── DirectoryGivenUp        a range server's data directory never counts again
    │   ├── SealBelowFloor          readers have seen records above the requested end: carries the floor
    │   ├── TopicStateForbids       not in the topic's present state, which the message names
    │   ├── TopicKindForbids        not with a topic of this kind: records or table
    │   ├── ShardEnded              the shard is not a current one any more
    │   ├── ShardLost               the group has handed the shard out again
    │   └── StaleMapVersion         the shard map was changed: read it again
    ├── ProtocolViolation           bytes that the protocol does not allow
    │   ├── OutOfOrder              an append that is not at the log end: carries the expected offset
    │   ├── AppendConflict          other bytes at an offset already written
    │   └── WrongServer             another server or incarnation than the request names
    ├── UnsupportedVersion          written or sent by another version; the message names what to upgrade
    ├── Corruption                  a checksum does not fit: the bytes are neither served nor treated as absent
    ├── Unauthorized                the token is missing or wrong
    │   ├── RoleForbids             the role of the certificate does not allow the port or the call
    │   └── RightMissing            no rule gives the client this right: the message names the rule
    ├── EncryptionKeyMissing        data is encrypted with a key that is not here: the message names its id
    ├── MissingExtra                an optional part is not installed: the message names it
    └── InternalError

Rules: a class has one stable `code`; callers match on class or code, never on text. `retriable`: the same call may
succeed later. `outcome_unknown`: the operation may have been carried out; an instance may be more precise than its class.
A message states what happened and what to do, in one line.
"""

from __future__ import annotations

from typing import ClassVar, Self


class RangelogError(Exception):
    """Base of all errors. `epoch`, `offset` and `address` are set where the subclass documents them."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False
    outcome_unknown: bool = False

    def __init__(
        self,
        message: str = "",
        *,
        epoch: int | None = None,
        offset: int | None = None,
        address: str | None = None,
        outcome_unknown: bool | None = None,
    ) -> None:
        super().__init__(message or self.__class__.__doc__ or self.code)
        self.message = message
        self.epoch = epoch
        self.offset = offset
        self.address = address
        if outcome_unknown is not None:
            self.outcome_unknown = outcome_unknown

    def with_outcome(self, *, unknown: bool) -> Self:
        """Return the same error with `outcome_unknown` set to `unknown`; False: nothing was carried out."""
        if self.outcome_unknown == unknown:
            return self
        told = type(self)(
            self.message, epoch=self.epoch, offset=self.offset, address=self.address, outcome_unknown=unknown
        )
        told.__cause__ = self.__cause__
        return told

    def details(self) -> dict[str, str]:
        """Return the fields that are sent beside code and message: those of epoch, offset and address that are set."""
        fields = {"epoch": self.epoch, "offset": self.offset, "address": self.address}
        return {name: str(value) for name, value in fields.items() if value is not None}


class InvalidArgument(RangelogError):
    """An argument is not valid."""

    code = "INVALID_ARGUMENT"


class RecordTooLarge(InvalidArgument):
    """A record or a batch above the limit."""

    code = "RECORD_TOO_LARGE"


class ConfigInvalid(InvalidArgument):
    """An unknown key or a bad value in a configuration."""

    code = "CONFIG_INVALID"


class KeyRangeGap(InvalidArgument):
    """Key ranges leave out keys that they must cover."""

    code = "KEY_RANGE_GAP"


class KeyRangeOverlap(InvalidArgument):
    """Key ranges cover a key twice, or keys beyond what they must cover."""

    code = "KEY_RANGE_OVERLAP"


class StreamNotFound(RangelogError):
    """No stream has this name."""

    code = "STREAM_NOT_FOUND"


class StreamExists(RangelogError):
    """A stream with this name exists already."""

    code = "STREAM_EXISTS"


class StreamSealed(RangelogError):
    """The stream is sealed for good, since its shard has ended; `offset` is its end. Readers go on up to that end."""

    code = "STREAM_SEALED"


class NamespaceNotFound(RangelogError):
    """No namespace has this name."""

    code = "NAMESPACE_NOT_FOUND"


class NamespaceExists(RangelogError):
    """A namespace with this name exists already."""

    code = "NAMESPACE_EXISTS"


class TopicNotFound(RangelogError):
    """No topic has this name or id."""

    code = "TOPIC_NOT_FOUND"


class TopicExists(RangelogError):
    """A topic with this name exists already in the namespace, or is still being deleted."""

    code = "TOPIC_EXISTS"


class ShardNotFound(RangelogError):
    """The topic has no shard of this id."""

    code = "SHARD_NOT_FOUND"


class ObjectNotFound(RangelogError):
    """The object store has no such object."""

    code = "OBJECT_NOT_FOUND"


class RangeNotFound(RangelogError):
    """This server holds no replica of the range (or no longer)."""

    code = "RANGE_NOT_FOUND"


class RangeDropped(RangeNotFound):
    """This server dropped its replicas of the stream up to this range: the range is sealed, or its stream deleted."""

    code = "RANGE_DROPPED"


class GroupNotFound(RangelogError):
    """There is no consumer group of that name."""

    code = "GROUP_NOT_FOUND"


class MemberNotFound(RangelogError):
    """The consumer group has no such member: its session expired, or it never joined. Join again."""

    code = "MEMBER_NOT_FOUND"


class MemberFenced(RangelogError):
    """A later instance with the same member id has joined the consumer group: this one is taken out, and commits nothing."""

    code = "MEMBER_FENCED"


class TransactionNotFound(RangelogError):
    """The transaction was never begun, or finished so long ago that it was forgotten."""

    code = "TRANSACTION_NOT_FOUND"


class ProducerFenced(RangelogError):
    """A later instance of the producer exists; `epoch` is its epoch."""

    code = "PRODUCER_FENCED"


class OffsetOutOfRange(RangelogError):
    """The offset is not readable; `offset` is the nearest readable one."""

    code = "OFFSET_OUT_OF_RANGE"


class OffsetTrimmed(OffsetOutOfRange):
    """The offset is below the trim offset; `offset` is the trim offset."""

    code = "OFFSET_TRIMMED"


class RecordsLost(OffsetOutOfRange):
    """No copy of the records is left, and an operator has accepted that; `offset` is the first one behind them."""

    code = "RECORDS_LOST"


class WriterFenced(RangelogError):
    """A later writer owns the stream; `epoch` is the epoch of that writer."""

    code = "FENCED"


class WriterClosed(RangelogError):
    """The writer was closed."""

    code = "WRITER_CLOSED"


class Unavailable(RangelogError):
    """The operation is not possible now; the same call may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class NotOwner(Unavailable):
    """This broker does not own the shard or journal, or has closed it: find the owner and ask again."""

    code = "NOT_OWNER"


class NotLeader(Unavailable):
    """This member is not the leader; `address` is the leader's address, where known."""

    code = "NOT_LEADER"


class AppendTimeout(Unavailable):
    """The append was not acked in time. It may still be acked: the writer retries until it is closed."""

    code = "APPEND_TIMEOUT"
    outcome_unknown = True


class RequestTimeout(Unavailable):
    """No reply arrived in time; the outcome is unknown."""

    code = "REQUEST_TIMEOUT"
    outcome_unknown = True


class NoPlacement(Unavailable):
    """Too few range servers to place a range."""

    code = "NO_PLACEMENT"


class SealBlocked(Unavailable):
    """Too few replicas give a trusted answer to seal the range. The range stays unsealed and no record is lost."""

    code = "SEAL_BLOCKED"


class StorageFull(Unavailable):
    """The disk is full. Reads continue; appends are accepted again when there is space."""

    code = "STORAGE_FULL"


class HandshakeFailed(Unavailable):
    """The two ends of a connection do not agree: plaintext against TLS, or a certificate that one of them does not accept."""

    code = "HANDSHAKE_FAILED"


class AccessDenied(Unavailable):
    """The object store refuses the credentials, or the right; the message says which, and what to do."""

    code = "ACCESS_DENIED"


class Overloaded(Unavailable):
    """A bounded queue is full."""

    code = "OVERLOADED"


class ClientClosed(Unavailable):
    """The client was closed before or during the call: the same call cannot succeed.

    `outcome_unknown` is set where the call may have been carried out.
    """

    code = "CLIENT_CLOSED"
    retriable = False


class OutcomeUnknown(RangelogError):
    """A command may or may not have been applied: read the state before a retry."""

    code = "OUTCOME_UNKNOWN"
    retriable = True
    outcome_unknown = True


class SessionExpired(RangelogError):
    """A journal's proposer was idle for too long: whether its last commands were applied is not known any more."""

    code = "SESSION_EXPIRED"
    outcome_unknown = True


class PreconditionFailed(RangelogError):
    """Another caller was first. Of an append with an expected end: `offset` is where the stream ends."""

    code = "PRECONDITION_FAILED"


class DirectoryGivenUp(PreconditionFailed):
    """A range server's data directory never counts again: the server was removed, or another directory has replaced it."""

    code = "DIRECTORY_GIVEN_UP"


class SealBelowFloor(PreconditionFailed):
    """Readers have seen records up to `offset`: the range cannot end below it."""

    code = "SEAL_BELOW_FLOOR"


class TopicStateForbids(PreconditionFailed):
    """The topic's present state does not allow this; the message names the state."""

    code = "TOPIC_STATE_FORBIDS"


class TopicKindForbids(PreconditionFailed):
    """The topic is of another kind: a table is not produced to, read as records, scaled, truncated or sealed."""

    code = "TOPIC_KIND_FORBIDS"


class ShardEnded(PreconditionFailed):
    """The shard has ended: its successors, if any, took its place."""

    code = "SHARD_ENDED"


class ShardLost(PreconditionFailed):
    """The group has handed the shard to another member, or again to this one: what this member did not commit is read again."""

    code = "SHARD_LOST"


class StaleMapVersion(PreconditionFailed):
    """The shard map has another version than the caller has seen."""

    code = "STALE_MAP_VERSION"


class ProtocolViolation(RangelogError):
    """Bytes that the protocol does not allow."""

    code = "PROTOCOL_VIOLATION"


class OutOfOrder(ProtocolViolation):
    """An append that is not at the log end; `offset` is the one expected."""

    code = "OUT_OF_ORDER"


class AppendConflict(ProtocolViolation):
    """Other bytes at an offset that was already written."""

    code = "APPEND_CONFLICT"


class WrongServer(ProtocolViolation):
    """The server or its incarnation differs from the one that the request names."""

    code = "WRONG_SERVER"


class UnsupportedVersion(RangelogError):
    """A peer, a file or data of a version that this program does not support; the message names what to upgrade.

    Refused data is undamaged: it is neither changed nor quarantined.
    """

    code = "UNSUPPORTED_VERSION"


class Corruption(RangelogError):
    """A checksum does not fit the bytes. They are not served."""

    code = "CORRUPTION"


class Unauthorized(RangelogError):
    """The credentials are missing or do not allow this."""

    code = "UNAUTHORIZED"


class RoleForbids(Unauthorized):
    """The role of the caller's certificate does not allow this port or this call."""

    code = "ROLE_FORBIDS"


class RightMissing(Unauthorized):
    """No rule gives the client this right; the message names the command that would."""

    code = "RIGHT_MISSING"


class EncryptionKeyMissing(RangelogError):
    """Data is encrypted with a key that this program does not have; the message names its id. The data is not damaged."""

    code = "ENCRYPTION_KEY_MISSING"


class MissingExtra(RangelogError):
    """An optional part is not installed."""

    code = "MISSING_EXTRA"


class InternalError(RangelogError):
    """A defect in rangelog. Please report it."""

    code = "INTERNAL"


def _tree(base: type[RangelogError]) -> dict[str, type[RangelogError]]:
    return {base.code: base} | {code: cls for sub in base.__subclasses__() for code, cls in _tree(sub).items()}


_BY_CODE: dict[str, type[RangelogError]] = _tree(RangelogError) | {InternalError.code: InternalError}


def error_from_code(
    code: str, message: str, *, epoch: int | None = None, offset: int | None = None, address: str | None = None
) -> RangelogError:
    """Rebuild an error that came over the wire. An unknown code becomes a plain RangelogError whose message holds the code."""
    said = message if code in _BY_CODE else f"{code}: {message}"
    return _BY_CODE.get(code, RangelogError)(said, epoch=epoch, offset=offset, address=address)
