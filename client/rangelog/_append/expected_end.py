"""The condition of an append: the stream ends where the caller believes.

What holds: a stream has one writer, whose `next_offset` counts all that it appended, acked or not, after all that the stream
held when it was opened. An acked record has the offset that it was promised. One that was not acked before another writer
opened is below that writer's first offset, or will never be in the log. So a record with an expected end is at that offset or
nowhere, and a repeat with the same expected end brings no second one.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed


def check_expected_end(stream: str, expected_end: object, end_offset: int) -> None:
    """Raise PreconditionFailed where the stream ends elsewhere, InvalidArgument for what is no offset."""
    if type(expected_end) is not int or expected_end < 0:
        raise InvalidArgument(f"expected_end is an offset, a whole number from 0, not {expected_end!r}")
    if expected_end != end_offset:
        raise PreconditionFailed(
            f"stream {stream!r} ends at {end_offset}, not at {expected_end}: nothing was appended; read what is there since",
            offset=end_offset,
        )
