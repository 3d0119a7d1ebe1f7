"""One sentence for whatever a job raises: errors of rangelog that Spark has wrapped are found again by their code's class.

What holds: the result is a RangelogError, so the command decides by its class; the text of a user's mistake has no traceback.
"""

from __future__ import annotations

import re

from rangelog_core import errors
from rangelog_core.errors import InternalError, InvalidArgument, MissingExtra, RangelogError

_ADVICE: dict[type[RangelogError], str] = {
    errors.StreamNotFound: "see `pdctl stream list`",
    errors.TopicNotFound: "see `pdctl topic list`",
    errors.Unauthorized: "pass --token or set RANGELOG_TOKEN",
    errors.WriterFenced: "another writer took the stream over; run the command again when it has ended",
}
_WRAPPED = re.compile(r"\brangelog_core\.errors\.(\w+): ([^\n]*)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_TEXT_MAX = 600


def explain(error: BaseException) -> RangelogError:
    """Return the error in rangelog's terms, with one sentence as its message.

    Example:
        >>> explain(ValueError("x")).message
        'internal error ValueError (x): set RANGELOG_DEBUG=1 for the details and report it'
    """
    if isinstance(error, RangelogError):
        return _with_advice(type(error), error.message or str(error))
    text = str(error)
    found = _WRAPPED.findall(text)
    if found:
        name, message = found[-1]
        cls = getattr(errors, name, None)
        if isinstance(cls, type) and issubclass(cls, RangelogError):
            return _with_advice(cls, message)
    if isinstance(error, ImportError):
        return MissingExtra(f"an optional part is missing ({text}): install it with pip install 'rangelog[spark]'")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return InternalError(f"{where}{error.strerror or text}: check the path and its permissions")
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return _of_spark(error, text)
    return InternalError(
        f"internal error {type(error).__name__} ({_short(text)}): set RANGELOG_DEBUG=1 for the details and report it"
    )


def _with_advice(cls: type[RangelogError], message: str) -> RangelogError:
    message = " ".join(message.split())
    advice = _ADVICE.get(cls, "")
    return cls(f"{message}: {advice}" if advice and advice not in message else message)


def _of_spark(error: BaseException, text: str) -> RangelogError:
    said = _short(_CONDITION.sub("", text.split("SQLSTATE")[0].split("\n\nJVM stacktrace")[0].split("\n\tat ")[0]))
    kind = type(error).__name__
    if kind in ("AnalysisException", "ParseException"):
        return InvalidArgument(f"Spark does not accept this: {said.rstrip('. ;')}")
    return InternalError(f"Spark failed: {said.rstrip('. ')}: set RANGELOG_DEBUG=1 for its log")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"
