"""The one way in which tests wait: for a state (`eventually`, `until`) or for records (`arrives`, `until_arrived`).

What holds:
- **A state is a wait, records are a verdict.** A state that does not come in time raises `WaitRanOut`: the machine may be slow.
  Records that do not come in time may be lost: they raise `AssertionError`, with the difference. A second try of a test
  is for the first alone.
- A look that raises an `Unavailable` that is retriable does not hold yet. Any other error ends the wait at once: what a look
  asserts is a verdict.
- The last look begins after the limit: a machine that stands still takes none away. The pause between two looks grows from a
  millisecond to a quarter of a second with the time that has passed; after a look that takes long, which is one that
  runs a command, it is twice as long as the look, a second at most: a wait leaves the processor to what it waits for.
- The message of `WaitRanOut` has the last value seen and what is the matter with the clusters of the test
  (`cluster_findings.py`).
- `until` and `until_arrived` read the clock of their event loop: virtual time works.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rangelog_core.errors import Unavailable
from tests.support.cluster_findings import findings

T = TypeVar("T")

WITHIN_S = 60.0
SHOWN_MAX = 2_000
"""Characters of a value in a message."""
_PAUSE_S_MIN, _PAUSE_S_MAX, _PAUSE_SHARE = 0.001, 0.25, 0.05
_PAUSE_LOOKS, _PAUSE_S_MAX_OF_LOOKS = 2.0, 1.0
_LOOK_S_MAX = 10.0
"""How long a look of `until` may take beyond the limit of the wait."""
_UNEQUAL_SHOWN = 5


class WaitRanOut(TimeoutError):
    """A state did not come in time. No verdict: a test of real processes may be tried again."""

    def __init__(self, message: str, found: str) -> None:
        super().__init__(message + found)
        self.found = found
        """What is the matter with the clusters of the test."""


@dataclass(frozen=True)
class Seen:
    """A look that tells more than whether it holds: `value` is what a message shows."""

    holds: object
    value: object

    def __bool__(self) -> bool:
        return bool(self.holds)

    def __repr__(self) -> str:
        return repr(self.value)


def eventually(holds: Callable[[], T], what: str = "", within_s: float = WITHIN_S) -> T:
    """Look until `holds` returns something true, and return that; raises WaitRanOut.

    `what`: what is waited for, or what is the matter until then; "" stands for the line of the condition.
    """
    wait = _Wait(time.monotonic(), within_s)
    while True:
        last_look = wait.is_over(time.monotonic())
        try:
            if wait.saw(found := holds()):
                return found
        except Unavailable as error:
            wait.failed(error)
        if last_look:
            raise WaitRanOut(wait.message(what, holds), findings())
        time.sleep(wait.pause_s(time.monotonic()))


async def until(holds: Callable[[], Any], what: str = "", within_s: float = WITHIN_S) -> Any:
    """As `eventually`, on the event loop. `holds` may be asynchronous; one that blocks belongs to `eventually` on a thread."""
    loop = asyncio.get_running_loop()
    wait = _Wait(loop.time(), within_s)
    while True:
        last_look = wait.is_over(loop.time())
        limit = asyncio.timeout(wait.left_s(loop.time()) + _LOOK_S_MAX)
        try:
            async with limit:
                found = holds()
                if wait.saw(found := await found if inspect.isawaitable(found) else found):
                    return found
        except Unavailable as error:
            wait.failed(error)
        except TimeoutError:
            if not limit.expired():
                raise
            wait.last, last_look = "a look that does not end", True
        if last_look:
            raise WaitRanOut(wait.message(what, holds), await asyncio.to_thread(findings))
        await asyncio.sleep(wait.pause_s(loop.time()))


def arrives(
    read: Callable[[], T],
    expected: T,
    what: str,
    within_s: float = WITHIN_S,
    *,
    by: Callable[[T, T], object] = operator.eq,
) -> T:
    """Read until the records (or their count) are as expected, and return them; raises AssertionError with the difference.

    `by`: how they are compared, `operator.ge` for "at least these" of counts and of sets.
    """
    last: list[T] = []

    def holds() -> bool:
        last[:] = [read()]
        return bool(by(last[0], expected))

    try:
        eventually(holds, what, within_s)
    except WaitRanOut as error:
        raise _verdict(what, within_s, last, expected, error) from None
    return last[0]


async def until_arrived(
    read: Callable[[], Any],
    expected: T,
    what: str,
    within_s: float = WITHIN_S,
    *,
    by: Callable[[Any, T], object] = operator.eq,
) -> Any:
    """As `arrives`, on the event loop; `read` may be asynchronous."""
    last: list[Any] = []

    async def holds() -> bool:
        found = read()
        last[:] = [await found if inspect.isawaitable(found) else found]
        return bool(by(last[0], expected))

    try:
        await until(holds, what, within_s)
    except WaitRanOut as error:
        raise _verdict(what, within_s, last, expected, error) from None
    return last[0]


class _Wait:
    """The time and the last look of one wait."""

    def __init__(self, began_s: float, within_s: float) -> None:
        self.last = "nothing"
        self._began_s = self._looks_s = began_s
        self._within_s = within_s

    def is_over(self, now_s: float) -> bool:
        """Whether the look that begins now is the last one."""
        self._looks_s = now_s
        return self.left_s(now_s) <= 0

    def left_s(self, now_s: float) -> float:
        return max(0.0, self._began_s + self._within_s - now_s)

    def pause_s(self, now_s: float) -> float:
        of_wait = min(max((now_s - self._began_s) * _PAUSE_SHARE, _PAUSE_S_MIN), _PAUSE_S_MAX)
        return max(of_wait, min((now_s - self._looks_s) * _PAUSE_LOOKS, _PAUSE_S_MAX_OF_LOOKS))

    def saw(self, found: object) -> bool:
        if found:
            return True
        self.last = shown(found)
        return False

    def failed(self, error: Unavailable) -> None:
        if not error.retriable:
            raise error
        self.last = shown(error)

    def message(self, what: str, holds: Callable[[], object]) -> str:
        return f"not within {self._within_s:g} s: {what or _line_of(holds)}; last seen: {self.last}"


def shown(value: object) -> str:
    """Return the value's repr, cut to SHOWN_MAX characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}… ({len(text):,} characters)"


def _line_of(holds: Callable[[], object]) -> str:
    code = getattr(holds, "__code__", None)
    if code is None:
        return shown(holds)
    return linecache.getline(code.co_filename, code.co_firstlineno).strip() or str(code.co_qualname)


def _verdict(what: str, within_s: float, last: list[Any], expected: object, error: WaitRanOut) -> AssertionError:
    difference = f"{_difference(last[0], expected)}{error.found}" if last else f"nothing could be read ({error})"
    return AssertionError(f"records are not as expected after {within_s:g} s: {what}; {difference}")


def _difference(read: object, expected: object) -> str:
    if isinstance(read, dict) and isinstance(expected, dict):
        read, expected = list(read.items()), list(expected.items())
    elif isinstance(read, set | frozenset) and isinstance(expected, set | frozenset):
        return _missing_and_extra(list(read), list(expected))
    if not (isinstance(read, list | tuple) and isinstance(expected, list | tuple)):
        return f"read {shown(read)}, expected {shown(expected)}"
    pairs = zip(read, expected, strict=False)
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(read), len(expected)))
    first = [shown(each[at]) if at < len(each) else "the end" for each in (read, expected)]
    counts = f"read {len(read):,}, expected {len(expected):,}"
    return f"{counts}, first difference at {at:,}: {first[0]} for {first[1]}; {_missing_and_extra(read, expected)}"


def _missing_and_extra(read: list[Any] | tuple[Any, ...], expected: list[Any] | tuple[Any, ...]) -> str:
    parts = []
    for name, these, those in (("missing", expected, read), ("extra", read, expected)):
        there = {repr(each) for each in those}
        only = [text for text in map(repr, these) if text not in there]
        parts.append(f"{name} {len(only):,}: {', '.join(only[:_UNEQUAL_SHOWN])[:SHOWN_MAX]}")
    return "; ".join(parts)
