"""Blocking calls on a thread of their own: a call that never ends fails its test, and does not hang it."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
WAIT_S = 20.0


def within(work: Callable[[], _T]) -> _T:
    """Return what `work` returns on a thread of its own. Raises its error, or TimeoutError when it does not end."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def main() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=main, daemon=True).start()
    return future.result(WAIT_S)
