"""The tree of errors, their stable codes, and how they travel.

    RangelogError
    ├── InvalidArgument             what was passed cannot be right
    │   ├── RecordTooLarge          above the record or batch limit
    │   └── ConfigInvalid           unknown key or bad value in a configuration
    ├── StreamNotFound
    ├── StreamExists
    ├── ObjectNotFound              the store has no such object
    ├── RangeNotFound               this server holds no replica of the range
    │   └── RangeDropped            it held one, or of a later range: this one is sealed, or its stream deleted
    ├── OffsetOutOfRange            beyond the end, or below the start: carries the nearest readable offset
    │   └── OffsetTrimmed           below the trim offset: gone on purpose
    ├── WriterFenced                a later writer owns the stream: carries its epoch
    ├── WriterClosed                used after close
    ├── Unavailable                 retriable: not now
    │   ├── NotLeader               carries the leader's address where known
    │   ├── AppendTimeout           not acked in time; the outcome is unknown until the writer says
    │   ├── RequestTimeout          an answer did not come in time; the outcome is unknown
    │   ├── NoPlacement             too few range servers to place a range
    │   ├── SealBlocked             too few truthful replicas to seal: nothing was guessed
    │   ├── StorageFull             the disk is full; reads go on
    │   └── Overloaded              a bounded queue is full
    ├── OutcomeUnknown              a command may or may not have been applied: read, do not assume
    ├── PreconditionFailed          somebody else was first (compare-and-set, seal, object key)
    │   └── SealBelowFloor          a reader was shown more than this seal would keep: carries the floor
    ├── ProtocolViolation           bytes that the protocol does not allow
    │   ├── OutOfOrder              an append that is not at the log end: carries the expected offset
    │   ├── AppendConflict          other bytes at an offset already written
    │   └── WrongServer             another server or incarnation than the caller meant
    ├── UnsupportedVersion          written or sent by another version; the message names what to upgrade
    ├── Corruption                  a checksum does not fit: never served, never taken for absence
    ├── Unauthorized
    ├── MissingExtra                an optional part is not installed: says which
    └── InternalError

Rules: a class has one stable `code`; callers match on class or code, never on text. `retriable`: the same call may
succeed later. `outcome_unknown`: it may have happened; an instance may know better than its class. A message says what
happened and what to do, in one line.
"""

from __future__ import annotations

from typing import ClassVar, Self


class RangelogError(Exception):
    """Base of all errors. `epoch`, `offset` and `address` are set where the class says so."""

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
        """Return the same error, said of something whose outcome is unknown, or known to be nothing."""
        if self.outcome_unknown == unknown:
            return self
        told = type(self)(
            self.message, epoch=self.epoch, offset=self.offset, address=self.address, outcome_unknown=unknown
        )
        told.__cause__ = self.__cause__
        return told

    def details(self) -> dict[str, str]:
        """What travels beside code and message."""
        fields = {"epoch": self.epoch, "offset": self.offset, "address": self.address}
        return {name: str(value) for name, value in fields.items() if value is not None}


class InvalidArgument(RangelogError):
    """What was passed cannot be right."""

    code = "INVALID_ARGUMENT"


class RecordTooLarge(InvalidArgument):
    """A record or a batch above the limit."""

    code = "RECORD_TOO_LARGE"


class ConfigInvalid(InvalidArgument):
    """An unknown key or a bad value in a configuration."""

    code = "CONFIG_INVALID"


class StreamNotFound(RangelogError):
    """No stream of that name."""

    code = "STREAM_NOT_FOUND"


class StreamExists(RangelogError):
    """A stream of that name exists already."""

    code = "STREAM_EXISTS"


class ObjectNotFound(RangelogError):
    """The object store has no such object."""

    code = "OBJECT_NOT_FOUND"


class RangeNotFound(RangelogError):
    """This server holds no replica of the range (or no longer)."""

    code = "RANGE_NOT_FOUND"


class RangeDropped(RangeNotFound):
    """This server gave up its replicas of the stream up to this range: it is sealed and lives elsewhere, or is gone."""

    code = "RANGE_DROPPED"


class OffsetOutOfRange(RangelogError):
    """An offset that is not readable; `offset` is the nearest one that is."""

    code = "OFFSET_OUT_OF_RANGE"


class OffsetTrimmed(OffsetOutOfRange):
    """An offset below the trim offset, which is `offset`."""

    code = "OFFSET_TRIMMED"


class WriterFenced(RangelogError):
    """A later writer owns the stream; `epoch` is its."""

    code = "FENCED"


class WriterClosed(RangelogError):
    """The writer was closed."""

    code = "WRITER_CLOSED"


class Unavailable(RangelogError):
    """Not now; the same call may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class NotLeader(Unavailable):
    """This member does not lead; `address` is who does, where known."""

    code = "NOT_LEADER"


class AppendTimeout(Unavailable):
    """Not acked in time. Whether it will be is unknown: the writer goes on trying until it is closed."""

    code = "APPEND_TIMEOUT"
    outcome_unknown = True


class RequestTimeout(Unavailable):
    """No answer in time; the outcome is unknown."""

    code = "REQUEST_TIMEOUT"
    outcome_unknown = True


class NoPlacement(Unavailable):
    """Too few range servers to place a range."""

    code = "NO_PLACEMENT"


class SealBlocked(Unavailable):
    """Too few truthful replicas to seal the range. Nothing was guessed and nothing is lost."""

    code = "SEAL_BLOCKED"


class StorageFull(Unavailable):
    """The disk is full. Reads go on; appends come back when there is room."""

    code = "STORAGE_FULL"


class Overloaded(Unavailable):
    """A bounded queue is full."""

    code = "OVERLOADED"


class OutcomeUnknown(RangelogError):
    """A command may or may not have been applied: read the state, do not assume."""

    code = "OUTCOME_UNKNOWN"
    retriable = True
    outcome_unknown = True


class PreconditionFailed(RangelogError):
    """Somebody else was first."""

    code = "PRECONDITION_FAILED"


class SealBelowFloor(PreconditionFailed):
    """A reader was shown records up to `offset`: the range cannot end below it."""

    code = "SEAL_BELOW_FLOOR"


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
    """Another server or incarnation than the caller meant."""

    code = "WRONG_SERVER"


class UnsupportedVersion(RangelogError):
    """A peer, a file or data of a version that this program does not support; the message names what to upgrade.

    What is refused so is undamaged: it is neither changed nor quarantined.
    """

    code = "UNSUPPORTED_VERSION"


class Corruption(RangelogError):
    """A checksum does not fit the bytes. They are not served."""

    code = "CORRUPTION"


class Unauthorized(RangelogError):
    """The credentials are missing or do not allow this."""

    code = "UNAUTHORIZED"


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
    """Rebuild an error that came over the wire. A code of a newer peer becomes a plain RangelogError that names it."""
    cls = _BY_CODE.get(code)
    if cls is None:
        return RangelogError(f"{code}: {message}", epoch=epoch, offset=offset, address=address)
    return cls(message, epoch=epoch, offset=offset, address=address)
