"""Wakes an event loop at a fixed rate, precisely: a kernel timer that the loop waits for like for a socket.

A loop's own timers are good to a millisecond at best (uvloop counts in whole ones), as much as what is measured takes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK = os.O_NONBLOCK


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("first", _Timespec))


async def tick(rate_per_s: int, count: int, on_due: Callable[[int, float], None]) -> None:
    """Call `on_due(number, due_s)` for 0 ≤ number < count, at start + number / rate; returns after the last.

    A loop that was busy gets all that was due meanwhile at once: `due_s` (of time.perf_counter) is when it should have
    been. Raises OSError where there is no such timer.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    descriptor = _start_timer(round(1e9 / rate_per_s))
    started_s = time.perf_counter()
    number = 0

    def expired() -> None:
        nonlocal number
        try:
            os.read(descriptor, 8)
            due_count = min(count, int((time.perf_counter() - started_s) * rate_per_s) + 1)
            while number < due_count:
                on_due(number, started_s + number / rate_per_s)
                number += 1
            if number == count and not done.done():
                done.set_result(None)
        except BlockingIOError:
            return
        except Exception as error:
            if not done.done():
                done.set_exception(error)

    loop.add_reader(descriptor, expired)
    try:
        await done
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _start_timer(period_ns: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    period = _Timespec(period_ns // 1_000_000_000, period_ns % 1_000_000_000)
    if libc.timerfd_settime(descriptor, 0, ctypes.byref(_Timerspec(period, period)), None) != 0:
        os.close(descriptor)
        raise OSError(ctypes.get_errno(), "timerfd_settime failed")
    return descriptor
