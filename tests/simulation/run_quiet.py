"""Silence."""

from __future__ import annotations

import logging

import structlog


def quiet() -> None:
    """Simulated servers log as real ones do; that is noise here."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
