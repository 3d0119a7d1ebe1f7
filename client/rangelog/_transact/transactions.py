"""The administration of transactions: which transactional ids there are, and what their latest transactions have come to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rangelog._arguments import checked_arguments
from rangelog._transact.transactional import CALL_TIMEOUT_S
from rangelog_core.errors import InvalidArgument, TransactionNotFound
from rangelog_core.ids import check_name
from rangelog_core.net.owner_calls import JOURNALS, OwnerCalls, journal_of
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub

STATES = {
    transaction_pb2.TRANSACTION_STATE_UNKNOWN: "none",
    transaction_pb2.TRANSACTION_STATE_OPEN: "open",
    transaction_pb2.TRANSACTION_STATE_WAITING: "waiting",
    transaction_pb2.TRANSACTION_STATE_COMMITTING: "committing",
    transaction_pb2.TRANSACTION_STATE_COMMITTED: "committed",
    transaction_pb2.TRANSACTION_STATE_ABORTED: "aborted",
}
_LAST = "\U0010ffff"
"""Behind every character of a name."""


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id and its latest transaction.

    Attributes:
        transactional_id: The id.
        producer_id: The number by which shards know it.
        epoch: Counts the instances of the id.
        number: The number of the latest transaction, which rises with each one; 0: there was none.
        state: "none", "open", "waiting" (to be committed once the one before it is merged), "committing" (decided: its records
            are about to appear), "committed" (all of them are in their shards), or "aborted".
        used: When the coordinator last carried out a command of the id.
        to_merge: (topic id, shard id) of where records of a commit were staged and are not in their shards yet.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    number: int
    state: str
    used: datetime
    to_merge: Sequence[tuple[int, int]] = ()


@checked_arguments
class Transactions:
    """The administration of transactions; `client.transactions`. Every method may raise Unavailable and RequestTimeout."""

    def __init__(self, calls: OwnerCalls) -> None:
        self._calls = calls

    async def list(
        self, prefix: str = "", *, state: str | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> AsyncIterator[TransactionInfo]:
        """Yield the transactional ids that start with `prefix`, in order.

        Args:
            prefix: The beginning of the ids.
            state: Only those whose latest transaction is in this state; None: all.
            timeout_s: Limit of each call in seconds.

        Raises:
            InvalidArgument: There is no such state.

        Example:
            ```python
            async for each in client.transactions.list(state="open"):
                print(each.transactional_id, each.used)
            ```
        """
        if state is not None and state not in STATES.values():
            raise InvalidArgument(f"bad state {state!r}: one of {', '.join(STATES.values())}")
        if not (prefix.isascii() and prefix.isprintable()):
            return  # no id starts so
        found: list[TransactionInfo] = []
        for journal in range(JOURNALS):
            token, more = _before(prefix), True
            while more:
                page = await self._page(journal, token, 0, timeout_s)
                wanted = [each for each in page.transactions if each.transactional_id.startswith(prefix)]
                found += [each for each in map(_info, wanted) if state in (None, each.state)]
                token = page.next_page_token
                more = bool(token) and len(wanted) == len(page.transactions)
        for each in sorted(found, key=lambda one: one.transactional_id):
            yield each

    async def describe(self, transactional_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TransactionInfo:
        """Return the latest transaction of a transactional id. Raises TransactionNotFound, InvalidArgument."""
        check_name("transactional id", transactional_id)
        page = await self._page(
            journal_of(transactional_id)[1], _before(transactional_id), 1, timeout_s, transactional_id
        )
        if not page.transactions or page.transactions[0].transactional_id != transactional_id:
            raise TransactionNotFound(f"there is no transactional id {transactional_id!r}, or it was forgotten")
        return _info(page.transactions[0])

    async def abort(self, transactional_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TransactionInfo:
        """Abort the open transaction of a transactional id, whose program learns of it at its commit; return its state.

        Raises TransactionNotFound, InvalidArgument, PreconditionFailed (it is committed, or about to be).
        """
        found = await self.describe(transactional_id, timeout_s=timeout_s)
        if found.state == "none":
            raise TransactionNotFound(f"the transactional id {transactional_id!r} has no transaction")
        name = transaction_pb2.TransactionName(
            transactional_id=transactional_id, epoch=found.epoch, number=found.number, producer_id=found.producer_id
        )
        if found.state != "aborted":
            request = pb.AbortTransactionRequest(name=name)
            await self._calls.call(
                journal_of(transactional_id), TransactionsStub, lambda stub: stub.AbortTransaction, request,
                timeout_s=timeout_s, repeatable=True,
            )  # fmt: skip
        return await self.describe(transactional_id, timeout_s=timeout_s)

    async def _page(
        self, journal: int, token: str, size: int, timeout_s: float, only: str = ""
    ) -> pb.ListTransactionsResponse:
        request = pb.ListTransactionsRequest(journal=journal, page_token=token, page_size=size, transactional_id=only)
        response: pb.ListTransactionsResponse = await self._calls.call(
            (0, journal), TransactionsStub, lambda stub: stub.ListTransactions, request,
            timeout_s=timeout_s, repeatable=True,
        )  # fmt: skip
        return response


def _before(name: str) -> str:
    """Return the page token behind which the names that start with `name` come first.

    >>> "job0~" < _before("job1") < "job1"
    True
    """
    return name[:-1] + chr(ord(name[-1]) - 1) + _LAST if name else ""


def _info(listed: pb.ListedTransaction) -> TransactionInfo:
    result = listed.result
    return TransactionInfo(
        listed.transactional_id,
        result.producer_id,
        result.epoch,
        result.number,
        STATES[result.state],
        datetime.fromtimestamp(listed.used_ms / 1000, UTC),
        tuple((each.topic_id, each.shard_id) for each in result.to_merge),
    )
