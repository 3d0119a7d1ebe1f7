"""Sends the commands of one client to one partition: what is asked for while calls are under way shares the next one.

What holds: a caller gets its command's result, refusal or error by its deadline; nothing else than its own command is behind
that. Four calls are under way at most.
"""

from __future__ import annotations

import asyncio

from rangelog._table.numbering import Batch, Numbering, QueuedCommand
from rangelog._table.partition_calls import PartitionCalls
from rangelog_core.errors import ClientClosed, InternalError, RangelogError, Unavailable
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb

CALLS_MAX = 4
CALL_TIMEOUT_S = 30.0
OVERLOADED_PAUSE_S = 0.05


class CommandSender:
    """See the module. For one event loop; `close` it."""

    def __init__(self, calls: PartitionCalls) -> None:
        self._calls = calls
        self._numbering = Numbering()
        self._opening: asyncio.Task[None] | None = None
        self._sending: dict[asyncio.Task[None], Batch] = {}
        self._is_due = False
        self._closed = False

    async def apply(self, message: table_pb2.TableCommand, timeout_s: float) -> table_pb2.TableResult:
        """Apply a command once.

        Raises:
            PreconditionFailed, InvalidArgument, StorageFull: It was refused, and has changed nothing.
            Unavailable, RequestTimeout, SessionExpired: With `outcome_unknown` if it may have been applied.
            Overloaded: Too much waits; it was not sent.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[table_pb2.TableResult] = loop.create_future()

        def resolve(result: table_pb2.TableResult | RangelogError) -> None:
            if future.done():
                return
            if isinstance(result, RangelogError):
                future.set_exception(result)
            else:
                future.set_result(result)

        command = QueuedCommand(message, resolve)
        self._numbering.add(command)
        self._soon()
        timer = loop.call_later(timeout_s, self._numbering.give_up, command, timeout_s)
        try:
            return await future
        finally:
            timer.cancel()
            self._numbering.give_up(command, timeout_s)  # without an effect unless the caller was cancelled

    async def close(self) -> None:
        """End all calls; their commands have an unknown outcome. Idempotent."""
        self._closed = True
        tasks = [*self._sending, *([self._opening] if self._opening is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._numbering.failed_all(Unavailable("the client was closed"))

    # ---- inside

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)  # what else is asked for in this turn comes along

    def _send(self) -> None:
        self._is_due = False
        numbering = self._numbering
        if self._closed or self._opening is not None or not numbering.has_work:
            return
        if numbering.session is None:
            self._opening = asyncio.create_task(self._open())
            return
        while len(self._sending) < CALLS_MAX and (batch := numbering.next_batch()) is not None:
            task = asyncio.create_task(self._call(batch))
            self._sending[task] = batch
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._sending[task]
        if not self._closed:
            self._soon()

    async def _open(self) -> None:
        try:
            self._numbering.opened(await self._calls.open_session(CALL_TIMEOUT_S))
        except RangelogError as error:
            self._numbering.failed_all(error)
        finally:
            self._opening = None
            if not self._closed:
                self._soon()

    async def _call(self, batch: Batch) -> None:
        tries = 0

        def on_try() -> None:
            nonlocal tries
            tries += 1

        request = pb.ApplyTableRequest(
            session=batch.session,
            settled=batch.settled,
            commands=[
                pb.NumberedTableCommand(sequence=command.sequence, command=command.message)
                for command in batch.commands
            ],
        )
        try:
            response = await self._calls.apply(request, CALL_TIMEOUT_S, on_try)
            if len(response.outcomes) != len(batch.commands):
                raise InternalError("the owner of a partition has answered other commands than were sent")
        except asyncio.CancelledError:
            self._numbering.failed(batch, Unavailable("the client was closed"), tries=tries)
            raise
        except RangelogError as error:
            self._numbering.failed(batch, error, tries=tries)
        else:
            if not self._numbering.answered(batch, response.outcomes, tries=tries):
                await asyncio.sleep(OVERLOADED_PAUSE_S)
