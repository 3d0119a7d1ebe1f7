"""The parts of the blocking classes that are more than a call on the client's loop, for `rangelog.sync`.

Invariants: functions of the program (iterables, deserializers) run on the calling thread; the end of a `with` block does
nothing in a forked child that ends by an exception, since the object belongs to its parent.
"""

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar

from rangelog._append.many_records import check_iterable
from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._connecting import Connecting
from rangelog._consume.group import GroupMember
from rangelog._consume.group_records import GroupRecord
from rangelog._consume.reader import TopicReader
from rangelog._consume.records import TopicRecord
from rangelog._loop_thread import LoopThread
from rangelog._produce.producer import TopicProducer
from rangelog._sync_submit import feed
from rangelog._table.table import Table
from rangelog._transact.transaction import Transaction
from rangelog._transact.transactional import Transactional
from rangelog_core.net.fork_guard import never_free_in_children
from rangelog_core.record import AppendRecord, BytesLike

_T = TypeVar("_T")


class _Enterable(Protocol):
    async def __aenter__(self) -> object: ...

    async def __aexit__(self, kind: type[BaseException] | None, /, *rest: object) -> None: ...


class _Sender(_Enterable, Protocol):
    @property
    def closed(self) -> bool: ...

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None: ...


_E = TypeVar("_E", bound=_Enterable)
_S = TypeVar("_S", bound=_Sender)


class Blocking(Generic[_T]):
    """The blocking form of an asynchronous object that belongs to a loop."""

    def __init__(self, loop: LoopThread, of: _T) -> None:
        self._loop = loop
        self._of = of


class Entered(Blocking[_E]):
    """An object that is used with `with`."""

    def __enter__(self) -> Self:
        self._loop.run(self._of.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a forked child that ends by an exception: what was entered belongs to its parent
        self._loop.run(self._of.__aexit__(kind, *rest))


class Sender(Entered[_S]):
    """A writer or a producer: it has records in flight, and its client closes it without a flush."""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._of.closed:
            super().__exit__(kind, *rest)

    def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """Flush, unless `flush` is False, and close; idempotent. Raises the errors of `flush`, after closing."""
        if not self._of.closed:
            self._loop.run(self._of.close(flush=flush, timeout_s=timeout_s))


class WriterBase(Sender[Writer]):
    """The blocking writer; make it with `client.writer(name)` and use it with `with`. Safe to use from several threads.

    Example:
        ```python
        with client.writer("flights") as writer:
            ack = writer.append(b"first", key=b"UA")
            writer.append_all(open("lines.txt", "rb"))
        ```
    """

    def append_all(self, records: Iterable[BytesLike | AppendRecord], *, timeout_s: float | None = None) -> int:
        """Append the records of any iterable; return how many, once all are acked. As `rangelog.Writer.append_all`.

        The iterable runs on the calling thread, up to 1,000 records ahead. If it raises, the records that it gave before may be
        appended.
        """
        check_iterable(records)
        return feed(self._loop, records, _size_of, lambda taken: self._of.append_all(taken, timeout_s=timeout_s))


def _size_of(record: BytesLike | AppendRecord) -> int:
    """Return about how much memory a record takes; what is no record is refused later."""
    value = record.value if isinstance(record, AppendRecord) else record
    return memoryview(value).nbytes if isinstance(value, BytesLike) else 0


class TopicProducerBase(Sender[TopicProducer]):
    """The blocking producer of a topic: make it with `client.producer(name)`, use it with `with`, on any threads."""


class TopicReaderBase(Blocking[TopicReader]):
    """An iterator of the records of a topic. Make it with `client.topic_reader(...)`; iterate once.

    Records, chunks, positions and errors are those of `rangelog.TopicReader`.
    """

    def __iter__(self) -> Iterator[TopicRecord]:
        deserialize = self._of.deserialize
        for chunk in self._loop.iterate(self._of.parts()):
            for record in chunk.records:
                self._of.note(chunk.shard_id, record.offset + 1)
                made = TopicRecord(chunk.shard_id, *record)
                yield made if deserialize is None else deserialize(made)


class TableBase(Blocking[Table]):
    """The rows of one table. Arguments, results and errors are those of `rangelog.Table`. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The name."""
        return self._of.name


class GroupMemberBase(Entered[GroupMember]):
    """The blocking member; make it with `client.group(...)` and use it with `with`. A listener runs on the client's thread."""

    def __init__(self, loop: LoopThread, of: GroupMember) -> None:
        super().__init__(loop, of)
        self._deserialize, of.deserialize = of.deserialize, None

    def __iter__(self) -> Iterator[GroupRecord]:
        records = self._loop.iterate(aiter(self._of))
        return records if self._deserialize is None else map(self._deserialize, records)

    @property
    def asynchronous(self) -> GroupMember:
        """The member on the client's loop."""
        return self._of

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self._of.member_id


class TransactionBase(Entered[Transaction]):
    """The blocking transaction; make it with `Transactional.transaction` and use it with `with`.

    Arguments, results and errors are those of `rangelog.Transaction`.
    """

    def submit(
        self,
        topic: str,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record without waiting until it is staged: the commit waits, and raises what it was refused with."""

        async def submit() -> None:
            await self._of.submit(
                topic, value, key=key, headers=headers, timestamp=timestamp, shard=shard
            )  # the future is the commit's to wait for

        self._loop.run(submit())


class TransactionalBase(Entered[Transactional]):
    """The blocking instance of a transactional id; make it with `client.transactional(...)` and use it with `with`."""

    @property
    def transactional_id(self) -> str:
        """The id."""
        return self._of.transactional_id


class ClientBase(Blocking[Client]):
    """The blocking client of one cluster. Its methods have the arguments, results and errors of those of `rangelog.Client`."""

    def __init__(self, loop: LoopThread, of: Client) -> None:
        super().__init__(loop, of)
        _open_clients.add(self)
        never_free_in_children(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close writers and producers, without a flush, and all connections; calls that wait in other threads raise an error.

        Idempotent, also from several threads. Does nothing in a forked process: the client belongs to its parent.
        """
        self._loop.stop(self._of.close)
        _open_clients.discard(self)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the asynchronous API on this client's loop and return its result."""
        return self._loop.run(work)

    def iterate(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """Yield the items of an asynchronous iterator of this client's `asynchronous` API."""
        return self._loop.iterate(items)

    @property
    def asynchronous(self) -> Client:
        """The asynchronous client underneath; its coroutines run with `run`."""
        return self._of


_C = TypeVar("_C", bound=ClientBase)
_open_clients: set[ClientBase] = set()


@atexit.register
def _close_all() -> None:
    """Close all clients at exit, so that a program without `close` ends without a message."""
    for client in list(_open_clients):
        client.close()


def connected(make: Callable[[LoopThread, Client], _C], connecting: Connecting) -> _C:
    """Make a client on a loop of its own, and its blocking form."""
    loop = LoopThread()
    try:
        return make(loop, loop.run(connecting.made()))
    except BaseException:
        loop.stop()
        raise
