"""The numbers of one client's commands to one partition: which batch is sent next, and what has become of each command. Pure.

What holds:
- A number belongs to one command of one session for ever. A command that may have been carried out gets no other number.
- `settled` of a batch is at most the smallest number of that session whose command is not resolved: the journal keeps the
  results above it.
- A command is resolved once: with a result, a refusal, or an error that states whether its outcome is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rangelog_core.errors import Overloaded, RangelogError, RequestTimeout, SessionExpired, error_from_code
from rangelog_core.limits import MIB
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb

BATCH_COMMANDS_MAX = 250
BATCH_BYTES_MAX = MIB
WINDOW = 1_000
"""Commands of one session that are not resolved; a journal keeps the results of 1,024."""
QUEUE_COMMANDS_MAX = 20_000
QUEUE_BYTES_MAX = 64 * MIB
_EXPIRED = "the session of the command expired"


class QueuedCommand:
    """One command, and where it is."""

    __slots__ = ("in_flight", "message", "resolve", "resolved", "sequence", "session", "size_bytes", "was_sent")

    def __init__(
        self,
        message: table_pb2.TableCommand,
        resolve: Callable[[table_pb2.TableResult | RangelogError], object],
    ) -> None:
        """`resolve`: called once."""
        self.message = message
        self.resolve = resolve
        self.size_bytes = message.ByteSize()
        self.session: int | None = None
        self.sequence = -1  # none yet
        self.was_sent = False
        self.in_flight = False
        self.resolved = False


class Batch(NamedTuple):
    """Commands of one session that are sent together."""

    session: int
    settled: int
    commands: Sequence[QueuedCommand]


class Numbering:
    """The commands of one client to one partition."""

    def __init__(self) -> None:
        self.session: int | None = None
        """None: none is open. A session's number may be 0."""
        self._queue: deque[QueuedCommand] = deque()
        self._queue_bytes = 0
        self._unresolved: dict[int, QueuedCommand] = {}  # of the present session, by rising number
        self._next_sequence = 0

    def add(self, command: QueuedCommand) -> None:
        """Queue a command. Raises Overloaded."""
        if len(self._queue) >= QUEUE_COMMANDS_MAX or self._queue_bytes + command.size_bytes > QUEUE_BYTES_MAX:
            raise Overloaded(
                f"{len(self._queue)} commands with {self._queue_bytes} bytes wait for one partition, the limit"
            )
        self._queue.append(command)
        self._queue_bytes += command.size_bytes

    @property
    def has_work(self) -> bool:
        """Whether commands wait to be sent."""
        return bool(self._queue)

    def opened(self, session: int) -> None:
        """Begin a session: numbers start at 0. Commands of the one before are resolved as their answers come."""
        self.session = session
        self._unresolved = {}
        self._next_sequence = 0

    def next_batch(self) -> Batch | None:
        """Return what to send now; None: nothing, or everything waits for a session or for what is not resolved."""
        if self.session is None:
            return None
        taken: list[QueuedCommand] = []
        size, settled = 0, self._settled()
        while self._queue:
            command = self._queue[0]
            is_new = command.sequence < 0 or command.session != self.session
            if is_new and command.was_sent:
                self._resolve(command, SessionExpired(_EXPIRED, outcome_unknown=True))
            if not command.resolved:
                full = len(taken) >= BATCH_COMMANDS_MAX or (taken and size + command.size_bytes > BATCH_BYTES_MAX)
                if full or (is_new and self._next_sequence - settled >= WINDOW):
                    break
                if is_new:
                    self._number(command)
                command.in_flight = True
                taken.append(command)
                size += command.size_bytes
            self._queue.popleft()
            self._queue_bytes -= command.size_bytes
        return Batch(self.session, settled, taken) if taken else None

    def _number(self, command: QueuedCommand) -> None:
        command.session, command.sequence = self.session, self._next_sequence
        self._unresolved[self._next_sequence] = command
        self._next_sequence += 1

    # ---- what becomes of a batch

    def answered(self, batch: Batch, outcomes: Sequence[pb.TableOutcome], *, tries: int) -> bool:
        """Take the outcomes of a batch; return whether all are final. `tries`: how often the batch may have arrived."""
        again: list[QueuedCommand] = []
        for command, outcome in zip(batch.commands, outcomes, strict=True):
            command.in_flight = False
            code = outcome.error_code
            if not code:
                self._resolve(command, table_pb2.TableResult(version=outcome.version, changed=outcome.changed))
            elif code == Overloaded.code:  # not applied; the same number is sent again
                command.was_sent = command.was_sent or tries > 1
                again.append(command)
            elif code == SessionExpired.code:
                self._expired(command, outcome.error_message, again, tries)
            else:
                self._resolve(command, error_from_code(code, outcome.error_message).with_outcome(unknown=False))
        self._put_back(again)
        return not again

    def failed(self, batch: Batch, error: RangelogError, *, tries: int) -> None:
        """Resolve the commands of a batch that got no answer. `tries`: how often it may have arrived."""
        for command in batch.commands:
            command.in_flight = False
            command.was_sent = command.was_sent or tries > 0
            self._resolve(command, error.with_outcome(unknown=command.was_sent))

    def failed_all(self, error: RangelogError) -> None:
        """Resolve all commands that wait to be sent: no session could be opened."""
        queue, self._queue, self._queue_bytes = self._queue, deque(), 0
        for command in queue:
            self._resolve(command, error.with_outcome(unknown=command.was_sent))

    def give_up(self, command: QueuedCommand, timeout_s: float) -> None:
        """Resolve a command whose caller waits no longer. No effect on one that is resolved."""
        unknown = command.was_sent or command.in_flight
        if command.resolved:
            return
        message = f"the command had no result within {timeout_s:g} s"
        self._resolve(command, RequestTimeout(message, outcome_unknown=unknown))

    def _expired(self, command: QueuedCommand, message: str, again: list[QueuedCommand], tries: int) -> None:
        if self.session == command.session:
            self.session = None
        if tries > 1 or command.was_sent:
            self._resolve(command, SessionExpired(message, outcome_unknown=True))
        else:  # it has arrived once, and was refused: it is sent anew under another session
            self._forget(command)
            command.sequence = -1
            again.append(command)

    def _put_back(self, commands: list[QueuedCommand]) -> None:
        for command in reversed(commands):
            if command.resolved:
                self._forget(command)
            else:
                self._queue.appendleft(command)
                self._queue_bytes += command.size_bytes

    def _resolve(self, command: QueuedCommand, result: table_pb2.TableResult | RangelogError) -> None:
        if not command.resolved:
            command.resolved = True
            command.resolve(result)
        if not command.in_flight:
            self._forget(command)

    def _forget(self, command: QueuedCommand) -> None:
        if self._unresolved.get(command.sequence) is command:
            del self._unresolved[command.sequence]

    def _settled(self) -> int:
        return next(iter(self._unresolved), self._next_sequence)
