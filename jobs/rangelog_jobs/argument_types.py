"""Arguments that several jobs have, and their types: what was typed as a value, or argparse's error."""

from __future__ import annotations

import argparse

from rangelog.spark.options import number
from rangelog.spark.options import size as size_of
from rangelog_core.errors import InvalidArgument


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option -o text|json: how `JobCall.emit` prints a result."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="what to print; default: text")


def add_streams(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the options --stream and --prefix, of which one may be given; return their group, for others that exclude these."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--stream", metavar="NAME", help="only this stream")
    which.add_argument("--prefix", metavar="P", help="only streams whose names start with it")
    return which


def setting(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE. Raises argparse.ArgumentTypeError."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not NAME=VALUE")
    return name.strip(), value


def size(text: str) -> int:
    """Return a number of bytes such as 256m. Raises argparse.ArgumentTypeError."""
    try:
        return size_of("", text)
    except InvalidArgument:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a number of bytes such as 256m") from None


def count(text: str) -> int:
    """Return a number above 0. Raises argparse.ArgumentTypeError."""
    try:
        return number("", text)
    except InvalidArgument:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a number above 0") from None
