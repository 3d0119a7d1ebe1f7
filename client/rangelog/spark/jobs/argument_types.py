"""Types of arguments that several jobs have: what was typed as a value, or argparse's error."""

from __future__ import annotations

import argparse

from rangelog.spark.options import number
from rangelog_core.errors import InvalidArgument


def setting(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE. Raises argparse.ArgumentTypeError."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not NAME=VALUE")
    return name.strip(), value


def count(text: str) -> int:
    """Return a number above 0. Raises argparse.ArgumentTypeError."""
    try:
        return number("", text)
    except InvalidArgument:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a number above 0") from None
