"""Questions of many callers that go in few calls.

What holds: what is asked in one turn of the loop goes together; while `calls_max` calls are in progress, what is asked
meanwhile gathers, and goes together with the next one. So a question alone is asked at once, and many take few calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rangelog_core.errors import InternalError, RangelogError

Q = TypeVar("Q")
A = TypeVar("A")


class CombinedCalls(Generic[Q, A]):
    """For one event loop; `close` it.

    Example:
        ```python
        rows = CombinedCalls(ask_for_rows, items_max=500, calls_max=2)
        first, second = await asyncio.gather(rows.ask(1), rows.ask(2))  # one call
        ```
    """

    def __init__(
        self,
        call: Callable[[list[Q]], Awaitable[Sequence[A | RangelogError]]],
        *,
        items_max: int,
        calls_max: int,
    ) -> None:
        """`call` answers some questions, in their order; what it raises is the answer to all of them."""
        self._call = call
        self._items_max = items_max
        self._calls_max = calls_max
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._is_due = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def ask(self, question: Q) -> A:
        """Return the answer to one question. Raises the error that is its answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, future))
        self._send_soon()
        return await future

    def close(self) -> None:
        """Cancel the calls in progress, and their waiters."""
        for task in self._tasks:
            task.cancel()
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            future.cancel()

    def _send_soon(self) -> None:
        if not self._is_due and len(self._tasks) < self._calls_max:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        while self._waiting and len(self._tasks) < self._calls_max:
            some: list[tuple[Q, asyncio.Future[A]]] = []
            while self._waiting and len(some) < self._items_max:
                each = self._waiting.popleft()
                if not each[1].done():
                    some.append(each)
            if some:
                task = asyncio.create_task(self._ask(some))
                self._tasks[task] = None
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if self._waiting:
            self._send_soon()

    async def _ask(self, some: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._call([question for question, _ in some])
            for (_, future), answer in zip(some, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, RangelogError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except asyncio.CancelledError:
            for _, future in some:
                future.cancel()
            raise
        except Exception as error:
            for _, future in some:
                if not future.done():
                    future.set_exception(error if isinstance(error, RangelogError) else InternalError(repr(error)))
