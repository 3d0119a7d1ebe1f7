"""The sessions of a journal's proposers: which of their commands were applied, and with which results.

What holds: a command that is in the log more than once is applied once, and each of its entries has the first one's result, for
as long as its proposer may ask: until it says that the command is settled. An expired session's commands are refused: nothing
is known of them any more. Who does not know a session's number can neither ask for its results nor propose in its place:
numbers are drawn by lot, from LEVEL_BROKERS on. Part of the replicated state: it changes only as entries are applied, by the
times in them.

The design is that of RIFL (Lee et al., "Implementing Linearizability at Large Scale and Low Latency", SOSP 2015): a result is
kept by client and sequence number, and dropped when the client has acknowledged it.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from rangelog_broker.journal.entry import PIECE_BYTES_MAX, Command
from rangelog_core.errors import (
    Corruption,
    InternalError,
    Overloaded,
    PreconditionFailed,
    RangelogError,
    SessionExpired,
    error_from_code,
)
from rangelog_core.versions import LEVEL_BROKERS

SESSION_MS = 600_000
"""A session that proposes nothing for so long expires."""
SESSIONS_MAX = 100_000
UNSETTLED_MAX = 1_024
"""Results kept for one session."""
RESULT_BYTES_MAX = 64 * 1024
"""Of one command."""
MESSAGE_CHARACTERS_MAX = 1_024
"""Of a refusal that is over that bound."""
SESSION_RESULTS_BYTES = 1024 * 1024
"""Of the results of one session, from which on it gets no more until it settles some; from LEVEL_BROKERS on."""
RESULTS_BYTES_MAX = 64 * 1024 * 1024
"""Results kept for all sessions."""

_U64 = struct.Struct("<Q")
_SESSION = struct.Struct("<QQQI")  # number, last used, settled, results
_RESULT = struct.Struct("<QHII")  # sequence; the lengths of the error's code, of its message and of the value


class Result(NamedTuple):
    """The result of a command: a value, or the error by which the machine refused it."""

    value: bytes = b""
    error_code: str = ""
    error_message: str = ""

    @property
    def size_bytes(self) -> int:
        """What it weighs."""
        return len(self.value) + len(self.error_code) + len(self.error_message)

    def unwrap(self) -> bytes:
        """Return the value, or raise the error."""
        if self.error_code:
            raise error_from_code(self.error_code, self.error_message)
        return self.value


def refused(error: RangelogError) -> Result:
    """Return the result of a command that is refused."""
    return Result(error_code=error.code, error_message=error.message)


def kept(result: Result) -> Result:
    """Return what a session keeps of a result, the same at every owner: a message that is too long is cut.

    A value that is too long is replaced by INTERNAL: the command was applied, and its proposer cannot learn with what result.
    """
    if result.size_bytes <= RESULT_BYTES_MAX:
        return result
    if result.error_code:
        return result._replace(error_message=result.error_message[:MESSAGE_CHARACTERS_MAX] + "…")
    return refused(
        InternalError(f"applied; its result of {result.size_bytes} bytes is over the limit of {RESULT_BYTES_MAX}")
    )


class _Session:
    __slots__ = ("results", "results_bytes", "settled", "used_ms")

    def __init__(self, used_ms: int) -> None:
        self.used_ms = used_ms
        self.settled = 0
        self.results: dict[int, Result] = {}
        self.results_bytes = 0

    def put(self, sequence: int, result: Result) -> int:
        """Keep a result; return what it weighs."""
        self.results[sequence] = result
        self.results_bytes += result.size_bytes
        return result.size_bytes

    def settle(self, settled: int) -> int:
        """Forget what is settled; return what it weighed."""
        before = self.results_bytes
        self.settled = settled
        for sequence in [each for each in self.results if each < settled]:
            self.results_bytes -= self.results.pop(sequence).size_bytes
        return before - self.results_bytes


class Sessions:
    """All sessions of one journal."""

    def __init__(self) -> None:
        self.level = 0
        """Of the journal: see Fold."""
        self._sessions: OrderedDict[int, _Session] = OrderedDict()  # the one that was used last is last
        self._results_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def size_bytes(self) -> int:
        """About the size of its pieces of a snapshot."""
        return self._results_bytes + _SESSION.size * len(self._sessions)

    def known(self, session: int, sequence: int) -> Result | None:
        """Return the result of an applied command; None where there is none, which proves nothing."""
        found = self._sessions.get(session)
        return found.results.get(sequence) if found is not None else None

    # ---- as entries are applied

    def expire(self, now_ms: int) -> None:
        """Remove what expired."""
        sessions = self._sessions
        while sessions:
            number, session = next(iter(sessions.items()))
            if now_ms - session.used_ms < SESSION_MS:
                return
            self._results_bytes -= session.results_bytes
            del sessions[number]

    def open(self, number: int, now_ms: int) -> Result:
        """Open a session; the value is its number."""
        if len(self._sessions) >= SESSIONS_MAX:
            return refused(Overloaded(f"{SESSIONS_MAX} sessions are open, the limit of a journal"))
        if number in self._sessions:
            return refused(Overloaded("a session has this number already: open another one"))
        self._sessions[number] = _Session(now_ms)
        return Result(_U64.pack(number))

    def begin(self, command: Command, now_ms: int) -> Result | None:
        """Return the result of a command that is not to be applied: known, or refused. None: apply it, then `keep`."""
        session = self._sessions.get(command.session)
        if session is None:
            return refused(
                SessionExpired(f"session {command.session} is not known: it expired {SESSION_MS // 1000} s idle")
            )
        session.used_ms = now_ms
        self._sessions.move_to_end(command.session)
        if command.settled > session.settled:
            self._results_bytes -= session.settle(command.settled)
        if command.sequence < session.settled:
            return refused(
                PreconditionFailed(f"command {command.sequence} was settled: its proposer has had the result")
            )
        known = session.results.get(command.sequence)
        if known is None and (self._is_full(session) or self._results_bytes >= RESULTS_BYTES_MAX):
            return refused(Overloaded("too many results are kept for proposers that have not settled them"))
        return known

    def _is_full(self, session: _Session) -> bool:
        """Whether a session has its share of what is kept, so that others have theirs."""
        if len(session.results) >= UNSETTLED_MAX:
            return True
        return self.level >= LEVEL_BROKERS and session.results_bytes >= SESSION_RESULTS_BYTES

    def keep(self, command: Command, result: Result) -> None:
        """Keep the result of a command that was applied."""
        self._results_bytes += self._sessions[command.session].put(command.sequence, result)

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return pieces of the present state, in the order in which sessions will expire."""
        frozen = [
            (number, each.used_ms, each.settled, list(each.results.items())) for number, each in self._sessions.items()
        ]
        return _pieces(frozen)

    def restore(self, piece: bytes) -> None:
        """Add the sessions of one piece. Raises Corruption."""
        at = 0
        try:
            while at < len(piece):
                number, used_ms, settled, count = _SESSION.unpack_from(piece, at)
                at += _SESSION.size
                session = self._sessions.get(number)
                if session is None:
                    session = self._sessions[number] = _Session(used_ms)
                    session.settled = settled
                for _ in range(count):
                    at = self._restore_result(session, piece, at)
        except (struct.error, UnicodeDecodeError) as error:
            raise Corruption("a snapshot's sessions do not decode") from error

    def _restore_result(self, session: _Session, piece: bytes, at: int) -> int:
        sequence, code_bytes, message_bytes, value_bytes = _RESULT.unpack_from(piece, at)
        at += _RESULT.size
        end: int = at + code_bytes + message_bytes + value_bytes
        if end > len(piece):
            raise Corruption("a snapshot's sessions are cut short")
        code = piece[at : at + code_bytes].decode()
        message = piece[at + code_bytes : at + code_bytes + message_bytes].decode()
        result = Result(piece[end - value_bytes : end], code, message)
        self._results_bytes += session.put(sequence, result)
        return end


def _pieces(frozen: list[tuple[int, int, int, list[tuple[int, Result]]]]) -> Iterator[bytes]:
    piece = bytearray()
    for number, used_ms, settled, results in frozen:
        rows: list[bytes] = []
        size = 0
        for sequence, result in results:
            row = _packed(sequence, result)
            if rows and len(piece) + _SESSION.size + size + len(row) > PIECE_BYTES_MAX - 1:
                piece += _SESSION.pack(number, used_ms, settled, len(rows)) + b"".join(rows)
                yield bytes(piece)
                piece, rows, size = bytearray(), [], 0
            rows.append(row)
            size += len(row)
        if piece and len(piece) + _SESSION.size + size > PIECE_BYTES_MAX - 1:
            yield bytes(piece)
            piece = bytearray()
        piece += _SESSION.pack(number, used_ms, settled, len(rows)) + b"".join(rows)
    if piece:
        yield bytes(piece)


def _packed(sequence: int, result: Result) -> bytes:
    code, message = result.error_code.encode(), result.error_message.encode()
    return _RESULT.pack(sequence, len(code), len(message), len(result.value)) + code + message + result.value
