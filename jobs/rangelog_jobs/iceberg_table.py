"""The Iceberg table of a stream or topic: made once, checked each time, and what it holds now.

What holds: a table is used only if its properties say that it was made for this very stream or topic (by id) and this tier, its
partitions are the ones it was made with, and every file in it is an object of the tier. So nothing is added to, or removed
from, a table that something else writes to.

The columns are those of an object; files have no field ids, so a name mapping in the table has them. Before them are columns
that no file has, `stream`, or `topic` and `shard`: identity partitions, whose values readers take from the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import BinaryType, IcebergType, LongType, MapType, NestedField, StringType, TimestamptzType

from rangelog_core.errors import ConfigInvalid, PreconditionFailed, RangelogError, Unauthorized, Unavailable
from rangelog_core.object_keys import stream_of_key
from rangelog_jobs.iceberg_partitions import has_day, is_ours, partition_spec, source_columns
from rangelog_jobs.iceberg_sources import TableSource

TRIM_FILE = "rangelog-trim-"
"""How the names of our files of deleted positions begin."""
PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The field ids that Iceberg reserves for the columns of files of deleted positions."""
_KIND, _NAME, _NUMBER, _TIER = "rangelog.source", "rangelog.name", "rangelog.id", "rangelog.tier"
_COLUMNS: tuple[tuple[str, IcebergType, bool], ...] = (
    ("offset", LongType(), True),
    ("timestamp", TimestamptzType(), True),
    ("key", BinaryType(), False),
    ("value", BinaryType(), True),
    ("headers", MapType(101, StringType(), 102, BinaryType(), value_required=False), True),
    ("batch_header", BinaryType(), False),
)
"""Name, type, and whether no row is without it. (pyiceberg reads no file that has a column without a mapping: all are here.)"""
_SETTINGS = {
    TableProperties.FORMAT_VERSION: "2",
    "gc.enabled": "false",  # the objects are the cluster's: no engine deletes them when it expires snapshots
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
CONFLICTS = (CommitFailedException, CommitStateUnknownException, ValidationException)
"""Another commit was first, or nobody knows: read the table again."""
_DENIALS_OF_S3 = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
"""As they stand in errors of pyarrow, which have no class."""
_MESSAGE_LENGTH_MAX = 200
_USER_OF_URL = re.compile(r"//[^/\s]*@")


@dataclass(slots=True)
class TableState:
    """The contents of a table: the objects by URL, with the entries of our files of deleted positions by the URL they are
    about."""

    snapshot_id: int | None
    objects: dict[str, DataFile] = field(default_factory=dict)
    trims: dict[str, ManifestEntry] = field(default_factory=dict)


@contextmanager
def catalog_errors(what: str) -> Iterator[None]:
    """Turn what a catalog, its database or its storage raises into one of our errors. Conflicts and missing files pass."""
    try:
        yield
    except (RangelogError, *CONFLICTS, NoSuchTableError, FileNotFoundError):
        raise
    except (UnauthorizedError, ForbiddenError, PermissionError) as error:
        raise Unauthorized(f"{what} refuses this: {_said(error)}; check the credentials") from error
    except (NotInstalledError, ImportError, ValueError, TypeError, KeyError) as error:
        raise ConfigInvalid(f"{what} cannot be used: {_said(error)}; check the catalog's properties") from error
    except Exception as error:  # of its own library: sqlalchemy, requests, boto3
        if any(each in str(error) for each in _DENIALS_OF_S3):
            raise Unauthorized(f"{what} refuses this: {_said(error)}; check the credentials") from error
        raise Unavailable(f"{what} does not answer: {_said(error)}; run this again when it does") from error


def open_table(catalog: Catalog, name: tuple[str, ...], source: TableSource, location: str) -> tuple[Table, bool]:
    """Return the table and whether it was made just now.

    Raises PreconditionFailed when there is another one of this name, Unavailable, ConfigInvalid.
    """
    made = False
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        _make_namespace(catalog, name[:-1])
        schema = table_schema(source)
        spec = partition_spec(source, {each.name: each.field_id for each in schema.fields})
        properties = _SETTINGS | _identity(source, location)
        try:
            table = catalog.create_table(name, schema, partition_spec=spec, properties=properties)
            made = True
        except TableAlreadyExistsError:  # a run at the same time was first
            table = catalog.load_table(name)
    _check_identity(table, ".".join(name), source, location)
    return table, made


def read_state(table: Table) -> TableState:
    """Return what the table holds. Raises PreconditionFailed when something else has written to it."""
    name = ".".join(table.name())
    snapshot = table.current_snapshot()
    state = TableState(snapshot.snapshot_id if snapshot is not None else None)
    start = f"{table.properties[_TIER]}/"
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            path = file.file_path
            if file.content == DataFileContent.POSITION_DELETES and _base_name(path).startswith(TRIM_FILE):
                state.trims[_about(file)] = entry
            elif file.content != DataFileContent.DATA:
                _refuse(f"table {name} has deletions that something else made ({path})")
            elif not path.startswith(start) or stream_of_key(path.removeprefix(start)) is None:
                _refuse(f"table {name} has a file that is not an object of the tier ({path})")
            elif path in state.objects:
                _refuse(f"table {name} has the object {path} twice")
            else:
                state.objects[path] = file
    return state


def table_schema(source: TableSource) -> Schema:
    """Return the columns of the table of a source."""
    columns = [*((name, kind, False) for name, kind in source_columns(source)), *_COLUMNS]
    return Schema(
        *(NestedField(number, name, kind, required=needed) for number, (name, kind, needed) in enumerate(columns, 1))
    )


def missing_columns(table: Table) -> list[tuple[str, IcebergType]]:
    """Return the columns of objects that the table does not know, since an earlier program made it."""
    mapping = table.name_mapping() or table.schema().name_mapping
    known = {name for each in mapping for name in each.names}
    return [(name, kind) for name, kind, _ in _COLUMNS if name not in known]


def field_ids(table: Table) -> dict[str, int]:
    """Return the field ids of the columns, by the names that they have in objects."""
    mapping = table.name_mapping() or table.schema().name_mapping
    return {name: each.field_id for each in mapping for name in each.names if each.field_id is not None}


def _make_namespace(catalog: Catalog, name: tuple[str, ...]) -> None:
    try:
        catalog.create_namespace(name)
    except NamespaceAlreadyExistsError:
        pass
    except Exception:  # of two runs at once one may get an error of the catalog's database
        if not catalog.namespace_exists(name):
            raise


def _identity(source: TableSource, location: str) -> dict[str, str]:
    return {_KIND: source.kind, _NAME: source.name, _NUMBER: str(source.number), _TIER: location}


def _check_identity(table: Table, name: str, source: TableSource, location: str) -> None:
    found = table.properties
    whose = f"{found.get(_KIND)} {found.get(_NAME)}"
    if _KIND not in found:
        _refuse(f"there is another table {name}, which this job did not make", "give a name of your own with --table")
    if (found[_KIND], found.get(_NAME)) != (source.kind, source.name):
        _refuse(f"table {name} is of {whose}", "give another name with --table")
    if found.get(_NUMBER) != str(source.number):
        _refuse(
            f"table {name} is of an earlier {whose}, which was deleted", "drop it, or give another name with --table"
        )
    if found.get(_TIER) != location:
        _refuse(f"table {name} has its objects at {found.get(_TIER)}, not at {location}", "give --tier-url, or drop it")
    columns = field_ids(table)
    of_others = [each for each in table.specs().values() if not is_ours(each, source, columns)]
    if of_others or not has_day(table.spec()) or table.format_version != 2:
        _refuse(f"the partitions or the format version of table {name} were changed", "drop it, and run this again")


def _refuse(what: str, advice: str = "drop it, and run this again: the objects stay") -> NoReturn:
    raise PreconditionFailed(f"{what}: {advice}")


def _about(file: DataFile) -> str:
    """Return the URL of the object whose rows one of our files deletes: both bounds of its paths are that URL."""
    return file.lower_bounds[PATH_ID].decode()


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _said(error: BaseException) -> str:
    """Return the first line of what an error says, without the user and the password of a URL."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].strip(" .:")
    return _USER_OF_URL.sub("//", text)[:_MESSAGE_LENGTH_MAX]
