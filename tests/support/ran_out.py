"""Tells a wait that ran out from a verdict, for second tries: what is no wait, or hides something else, is a verdict."""

from __future__ import annotations

import subprocess

from rangelog_core.errors import AppendTimeout, RangelogError, RequestTimeout
from tests.support.waiting import WaitRanOut

WAITS = (WaitRanOut, RequestTimeout, AppendTimeout)
BESIDE_A_WAIT = (OSError, subprocess.TimeoutExpired)
"""Errors that a wait may stem from: attempts that failed before it ran out."""


def is_wait_that_ran_out(error: BaseException) -> bool:
    """Whether the error and all that it is grouped with are waits that ran out, and none of them hides another kind of error.

    An assertion that failed before the wait (the cleanup after it timed out) makes it a verdict.
    """
    if not _all_may_precede(error.__cause__, error.__context__):
        return False
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_wait_that_ran_out, error.exceptions))
    return isinstance(error, WAITS)


def _all_may_precede(*errors: BaseException | None) -> bool:
    """Whether these errors and what they stem from are attempts that failed, and no verdict."""
    left, seen = [error for error in errors if error is not None], set()
    while left:
        error = left.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        retriable = isinstance(error, RangelogError) and error.retriable
        call_failed = any(
            each.__name__ == "RpcError" for each in type(error).__mro__
        )  # gRPC need not be imported for it
        if not (retriable or call_failed or isinstance(error, BESIDE_A_WAIT)):
            return False
        left += [each for each in (error.__cause__, error.__context__) if each is not None]
    return True
