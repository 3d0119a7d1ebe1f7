"""Errors over HTTP: a RangelogError becomes a status and a JSON object with its code.

What holds: every error that a caller receives has this form, and other exceptions stay in the log. A message is one line of
bounded length, whatever text of the request it shows.
"""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rangelog_core.errors import (
    GroupNotFound,
    InvalidArgument,
    MemberFenced,
    MemberNotFound,
    NamespaceExists,
    NamespaceNotFound,
    ObjectNotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    RangeNotFound,
    RequestTimeout,
    RightMissing,
    ShardNotFound,
    StreamExists,
    StreamNotFound,
    StreamSealed,
    TopicExists,
    TopicNotFound,
    TransactionNotFound,
    Unauthorized,
    Unavailable,
    UnsupportedVersion,
    WriterFenced,
)

_NOT_FOUND = (
    GroupNotFound,
    MemberNotFound,
    NamespaceNotFound,
    ObjectNotFound,
    RangeNotFound,
    ShardNotFound,
    StreamNotFound,
    TopicNotFound,
    TransactionNotFound,
)
_CONFLICT = (
    MemberFenced,
    NamespaceExists,
    OffsetOutOfRange,
    PreconditionFailed,
    ProducerFenced,
    StreamExists,
    StreamSealed,
    TopicExists,
    WriterFenced,
)
_STATUSES: tuple[tuple[type[RangelogError] | tuple[type[RangelogError], ...], int], ...] = (
    (InvalidArgument, 400),
    (UnsupportedVersion, 400),
    (RightMissing, 403),
    (Unauthorized, 401),
    (_NOT_FOUND, 404),
    (_CONFLICT, 409),
    (RequestTimeout, 504),
    (OutcomeUnknown, 504),
    (Unavailable, 503),
)
"""The first that fits decides."""

MESSAGE_LENGTH_MAX = 400
"""Characters."""

_MEANINGS = {
    400: "An argument is not valid.",
    401: "The token is missing or wrong.",
    403: "The request comes from a web page, or the role of the certificate does not allow it.",
    404: "It does not exist.",
    405: "The resource has no such method.",
    408: "The body did not arrive in time.",
    409: "Its present state does not allow this, or another caller was first.",
    413: "The body is too large.",
    500: "A defect; the broker's log has the details.",
    503: "Not possible now; the same request may succeed later.",
    504: "No answer arrived in time.",
}


class ErrorAnswer(BaseModel):
    """An error."""

    code: str = Field(description="The stable code of the error.", examples=["TOPIC_NOT_FOUND"])
    message: str = Field(description="What happened and what to do, in one line.", examples=["no topic 'air/flights'"])
    retriable: bool = Field(description="Whether the same request may succeed later.", examples=[False])
    outcome_unknown: bool = Field(description="Whether it may have been carried out all the same.", examples=[False])


def status_of(error: RangelogError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 500)


def shown(text: str, length_max: int) -> str:
    """Return a text that may hold parts of a request: in one line, and cut."""
    line = "".join(each if each.isprintable() else "?" for each in text[: length_max + 1])
    return line if len(line) <= length_max else f"{line[:length_max]}…"


def error_response(error: RangelogError, status: int | None = None) -> JSONResponse:
    """Return the response for an error; `status`: in place of the one that belongs to its class."""
    status = status_of(error) if status is None else status
    answer = ErrorAnswer(
        code=error.code,
        message=shown(str(error), MESSAGE_LENGTH_MAX),
        retriable=error.retriable,
        outcome_unknown=error.outcome_unknown,
    )
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(answer.model_dump(), status_code=status, headers=headers)


def possible(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation for its description: these, and those that every operation has."""
    every = (400, 401, 503, 504)
    return {each: {"model": ErrorAnswer, "description": _MEANINGS[each]} for each in sorted({*every, *statuses})}
