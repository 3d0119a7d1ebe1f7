"""Writes the entries of the audit log to its stream, while this member leads.

What holds: an entry is one record, in order, once. The writer fences any other and then reads the last record, so it knows what
is in the stream, whatever earlier leaders and tries did. An entry is forgotten by the state only when it was acked. A record
that no placement driver wrote is not believed: entries follow it, and `pdctl audit verify` finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

import rangelog
from rangelog_core.audit import parse_line
from rangelog_core.errors import Corruption, RangelogError
from rangelog_core.ids import AUDIT_STREAM_NAME
from rangelog_core.net.tls import TlsConfig
from rangelog_pd.driver import Driver
from rangelog_proto.v1 import audit_pb2, pd_state_pb2

LOOK_INTERVAL_S = 0.2
RETRY_S = 2.0
CALL_TIMEOUT_S = 10.0
ENTRIES_MAX = 500
"""Written at once."""

_log = structlog.get_logger("pd")


class AuditWriter:
    """See the module. Use `run` in a task; `close` it."""

    def __init__(
        self, driver: Driver, addresses: Callable[[], Sequence[str]], token: str | None, tls: TlsConfig | None
    ) -> None:
        """`addresses`: of the placement drivers' API."""
        self._driver = driver
        self._addresses = addresses
        self._token = token
        self._tls = tls
        self._client: rangelog.Client | None = None
        self._writer: rangelog.Writer | None = None
        self._last_sequence = 0
        """Of the last entry in the stream."""

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                if not self._driver.consensus.is_leader():
                    await self.close()
                else:
                    await self._look()
                self._driver.audit_problem = ""
            except RangelogError as error:
                await self._failed(error.message)
            except Exception as error:
                _log.exception("the audit log could not be written")
                await self._failed(
                    f"an internal error: {type(error).__name__}; the log of this process has the details"
                )

    async def close(self) -> None:
        """Leave the stream. The next writer finds out which entries were not acked."""
        writer, client = self._writer, self._client
        self._writer = self._client = None
        if writer is not None:
            with suppress(RangelogError):
                await writer.close(flush=False, timeout_s=CALL_TIMEOUT_S)
        if client is not None:
            with suppress(RangelogError):
                await client.close()

    async def _failed(self, problem: str) -> None:
        if problem != self._driver.audit_problem:
            _log.warning("the audit log cannot be written; entries wait", problem=problem)
        self._driver.audit_problem = problem
        await self.close()
        await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        """Write the entries that wait, and have the state forget them."""
        with self._driver.state() as state:
            audit = state.audit
            first = audit.written_sequence + 1
            beyond = min(audit.last_sequence + 1, first + ENTRIES_MAX)
            pending = [audit.pending[sequence] for sequence in range(first, beyond)]
            stream_id = audit.stream_id
        if not pending:
            return
        if self._writer is None:
            await self._open(stream_id)
        assert self._writer is not None
        await self._append(self._writer, [each for each in pending if each.sequence > self._last_sequence])
        written = pd_state_pb2.Command(mark_audit_written=audit_pb2.MarkAuditWritten(sequence=pending[-1].sequence))
        await self._driver.propose_own(written)

    async def _append(self, writer: rangelog.Writer, entries: Sequence[audit_pb2.AuditEntry]) -> None:
        if entries and entries[0].sequence != self._last_sequence + 1:
            _log.error(
                "entries of the audit log are missing in its stream", last=self._last_sequence
            )  # `pdctl audit verify`
        acks = [asyncio.ensure_future(writer.append(each.line, timeout_s=CALL_TIMEOUT_S)) for each in entries]
        try:
            await asyncio.gather(*acks)
        finally:
            for each in acks:
                each.cancel()
        if entries:
            self._last_sequence = entries[-1].sequence

    async def _open(self, stream_id: int) -> None:
        self._client = rangelog.Client(
            list(self._addresses()),
            token=self._token,
            tls=self._tls,
            tier_url=None,
            encryption_keys=self._driver.encryption_keys,  # its last record may be in the tier alone
        )
        self._writer = self._client.internal.writer(AUDIT_STREAM_NAME, open_timeout_s=CALL_TIMEOUT_S)
        await self._writer.open()
        end = self._writer.next_offset
        self._last_sequence = 0
        if not end:
            return
        async with asyncio.timeout(CALL_TIMEOUT_S):
            async for chunk in self._client.internal.records(AUDIT_STREAM_NAME, stream_id, end - 1, end):
                for record in chunk:
                    self._last_sequence = self._sequence_of(bytes(record.value))

    def _sequence_of(self, line: bytes) -> int:
        """Return the sequence number of the last record, if a placement driver wrote it; else of the last known to be there."""
        with self._driver.state() as state:
            audit = state.audit
            written = audit.written_sequence
            try:
                sequence = int(parse_line(line)["sequence"])
            except Corruption:
                sequence = 0
            waiting = audit.pending.find(sequence)
            is_ours = waiting.line == line if waiting is not None else sequence == written
        if not is_ours:
            _log.error(
                "the stream of the audit log ends with what no placement driver wrote: `pdctl audit verify`",
                last=written,
            )
        return sequence if is_ours else written
