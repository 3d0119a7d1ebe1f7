"""Errors as the page shows them: a status of HTTP, what is wrong, and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core import errors
from rangelog_core.errors import RangelogError

_NOT_FOUND = (
    errors.StreamNotFound,
    errors.TopicNotFound,
    errors.NamespaceNotFound,
    errors.GroupNotFound,
    errors.RangeNotFound,
    errors.ShardNotFound,
)
_STATUSES: tuple[tuple[type[RangelogError] | tuple[type[RangelogError], ...], int, str], ...] = (
    (errors.InvalidArgument, 400, "Correct the address, or begin at the cluster."),
    (errors.RoleForbids, 403, "Ask with a certificate of that role: choose another one in the browser."),
    (errors.RightMissing, 403, "Ask an administrator for it, or choose another certificate in the browser."),
    (errors.Unauthorized, 401, "Sign in with any user name and the cluster's token as the password."),
    (_NOT_FOUND, 404, "It may have been deleted, or is called otherwise: look in the list."),
    (errors.MissingExtra, 503, "Install it where this placement driver runs, or look with pdctl."),
    (errors.RequestTimeout, 504, "It is tried again by itself; see Health for processes that do not answer."),
    (errors.Overloaded, 503, "Wait a moment: it is tried again by itself."),
    (
        errors.Unavailable,
        503,
        "It is tried again by itself. If it stays so, see that a majority of the placement drivers runs.",
    ),
    (errors.OffsetOutOfRange, 409, "Load this page again: the tail begins with the last records."),
)
_OTHER = (500, "Load the page again; if it stays so, the log of this placement driver has the details.")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown."""

    status: int
    code: str
    message: str
    advice: str


def failure_of(error: RangelogError) -> Failure:
    """Return how an error is shown."""
    for kind, status, advice in _STATUSES:
        if isinstance(error, kind):
            return Failure(status, error.code, error.message, advice)
    return Failure(_OTHER[0], error.code, error.message, _OTHER[1])
