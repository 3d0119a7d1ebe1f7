"""The log of servers: one line for each event on stderr, of the same form for all processes and for the libraries in them.

What holds: a line has the time (UTC), level, event, logger, role and name of the process, and what else is known. It is JSON,
or key=value with `logfmt`; "auto" is text for people on a terminal, JSON elsewhere. The secrets that a process was given, and
what looks like a signed token, are in no line of any logger. The newest lines stay in memory as well, as JSON:
recent_log.py. Needs structlog (a server extra).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

import structlog

from rangelog_server_common.recent_log import RECENT

LogFormat = Literal["auto", "json", "logfmt"]
MASK = "***"
_SIGNED = re.compile(r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
"""A signed token, whole or cut off in its last part."""
_FIRST_KEYS = ("timestamp", "level", "role", "process", "logger", "event")


def log_to_stderr(role: str, name: str, *, log_format: LogFormat = "auto", secrets: Sequence[str | None] = ()) -> None:
    """Configure the log of this process: structlog, and what packages log by the standard library (`rangelog` from INFO on).

    `secrets`: texts that are masked wherever they would be printed.
    """
    hidden = [form for each in secrets if each for form in (each, json.dumps(each)[1:-1])]  # as JSON writes it, too

    def masked(line: str) -> str:
        for each in hidden:
            line = line.replace(each, MASK)
        return _SIGNED.sub(MASK, line) if "eyJ" in line else line

    def keep(_logger: Any, _method: str, event: Any) -> Any:
        RECENT.note(event, masked)
        return event

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _identify(role, name),
            structlog.processors.format_exc_info,
            keep,
            _in_order,
            _renderer(log_format),
            lambda _logger, _method, line: masked(str(line)),
        ],
        logger_factory=_NamedLogger,
        cache_logger_on_first_use=True,
    )
    _take_standard_library()


def _renderer(log_format: LogFormat) -> structlog.typing.Processor:
    if log_format == "logfmt":
        return structlog.processors.LogfmtRenderer(key_order=_FIRST_KEYS, drop_missing=True)
    if log_format == "auto" and sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer()
    return structlog.processors.JSONRenderer(ensure_ascii=False)


def _in_order(_logger: Any, _method: str, event: Any) -> Any:
    """Put the fields that every line has first, so that lines can be read one below the other."""
    return {key: event[key] for key in _FIRST_KEYS if key in event} | event


class _NamedLogger(structlog.PrintLogger):
    def __init__(self, *names: str) -> None:
        super().__init__(sys.stderr)
        self.logger_name = names[0] if names else ""


def _identify(role: str, name: str) -> structlog.typing.Processor:
    def add(logger: Any, _method: str, event: Any) -> Any:
        said = {"role": role, "process": name, "logger": getattr(logger, "logger_name", "")}
        event.update({key: value for key, value in said.items() if value and key not in event})
        return event

    return add


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def _take_standard_library() -> None:
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.handlers[:] = [_ToStructlog()]
    logging.getLogger("rangelog").setLevel(logging.INFO)
