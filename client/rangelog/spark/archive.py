"""The archive that gives rangelog to Spark's processes on machines without it: `--py-files`, `addPyFile`, `addArtifacts`.

It has the Python sources of the packages that tasks import, of any Python from 3.11 on and any machine. Compiled packages are
not in it (`rangelog.spark.needs`): the Python of the workers must have them.

What holds: the same sources make the same bytes.

    python -m rangelog.spark.archive rangelog.zip
    PYTHONPATH=rangelog.zip spark-submit --master spark://… --py-files rangelog.zip job.py
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import ConfigInvalid, InvalidArgument, RangelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark_rangelog", "rangelog", "rangelog_core", "rangelog_jobs", "rangelog_proto", "rangelog_tier")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment of a zip file


def write_archive(path: str | Path) -> Path:
    """Write the archive, and return its path.

    Args:
        path: A file that ends with .zip, as Spark asks; one that is there is replaced.

    Raises:
        InvalidArgument: The name does not end with .zip, or its directory is not there.
        ConfigInvalid: This process has rangelog from an archive itself.

    Example:
        ```python
        session.sparkContext.addPyFile(str(write_archive("rangelog.zip")))
        ```
    """
    target = Path(path)
    if target.suffix != ".zip":
        raise InvalidArgument(f"{target} is no name for the archive: Spark takes one that ends with .zip")
    if not target.parent.is_dir():
        raise InvalidArgument(f"{target.parent} is not a directory: make it first, or write the archive elsewhere")
    sources = sorted(_sources())
    if not sources:
        raise ConfigInvalid("rangelog itself was loaded from an archive here: give Spark that one")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, source in sources:
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED)
    target.write_bytes(packed.getvalue())
    return target


def give_to(session: SparkSession, path: str | Path) -> None:
    """Write the archive, give it to a session's workers, and register the format in the session.

    For a session on a cluster whose machines do not have rangelog, and for one of Spark Connect. For queries that follow a
    stream, the archive has to be in the `PYTHONPATH` of the driver, or of the server, when it starts.

    Args:
        session: A session, of either kind.
        path: As for `write_archive`.

    Raises:
        InvalidArgument, ConfigInvalid: As `write_archive`.

    Example:
        ```python
        session = SparkSession.builder.remote("sc://127.0.0.1:15002").getOrCreate()
        give_to(session, "rangelog.zip")
        session.read.format("rangelog").option("pd", "127.0.0.1:7100").option("stream", "flights").load()
        ```
    """
    archive = str(write_archive(path).resolve())
    session.addArtifacts(archive, pyfile=True)
    register(session)


def register(session: SparkSession) -> None:
    """Register the format in a session whose driver was started without rangelog: Spark itself looks at its start only.

    Args:
        session: A session, of either kind.

    Example:
        ```python
        session = SparkSession.builder.getOrCreate()
        register(session)
        session.read.format("rangelog").option("pd", "127.0.0.1:7100").option("stream", "flights").load()
        ```
    """
    from rangelog.spark.source import RangelogSource

    session.dataSource.register(RangelogSource)


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield each Python file of the packages: its name in the archive, and what is in it."""
    for package in PACKAGES:
        spec: Any = find_spec(package)
        for folder in spec.submodule_search_locations:
            for path in Path(folder).rglob("*.py"):
                yield f"{package}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m rangelog.spark.archive PATH.zip\n")
        return 2
    try:
        path = write_archive(arguments[0])
    except (RangelogError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
