"""The log of servers: structured lines on stderr, readable on a terminal, JSON elsewhere. Needs structlog (a server extra)."""

from __future__ import annotations

import logging
import sys

import structlog


def log_to_stderr() -> None:
    """Configure structlog for this process."""
    render: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def log_library() -> None:
    """Put what the packages log by the standard library, from INFO on, into the same log: for servers built on the SDK."""
    logger = logging.getLogger("rangelog")
    logger.setLevel(logging.INFO)
    logger.addHandler(_ToStructlog())
    logger.propagate = False
