"""What the Python of each of Spark's processes must have beside rangelog: compiled packages, which no archive can carry.

Spark loads `rangelog.spark` when it unpickles a task. A worker without one of the packages then says in one sentence which, in
which Python, and what to install, in place of an import error from somewhere inside. Uses the standard library alone.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from rangelog_core.errors import MissingExtra

_NEEDED = {
    "google.protobuf": "protobuf",
    "google_crc32c": "google-crc32c",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "pyarrow": "pyarrow",
    "zstandard": "zstandard",
}
"""Modules, and the packages that have them."""


def missing_packages() -> list[str]:
    """Return the packages that this Python lacks, by the names under which they are installed.

    Example:
        ```python
        assert missing_packages() == []  # where rangelog was installed with pip, as rangelog[spark]
        ```
    """
    return [package for module, package in _NEEDED.items() if not _is_there(module)]


def check_packages() -> None:
    """Raise MissingExtra unless this Python has all packages that a task of Spark needs.

    Example:
        ```python
        check_packages()
        ```
    """
    missing = missing_packages()
    if missing:
        raise MissingExtra(
            f"the Python of this Spark process, {sys.executable}, lacks {' and '.join(missing)}: install there "
            "what rangelog[spark] needs, or name another Python with PYSPARK_PYTHON"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is not there
        return False
