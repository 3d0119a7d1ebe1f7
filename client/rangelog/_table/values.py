"""Tables, their rows and changes of rows, as values.

What holds: the constructors check their values, so no request is sent for a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import TABLE_VALUE_BYTES_MAX
from rangelog_core.table_keys import row_key
from rangelog_proto.v1 import table_pb2

_VERSION_MAX = (1 << 64) - 1


class TableRow(NamedTuple):
    """A row of a table.

    Attributes:
        key: The key.
        value: The value.
        version: The version of its last change. Versions rise within a partition; they are above 0.
        family: The family of the key; None: it has none.
    """

    key: bytes
    value: bytes
    version: int
    family: bytes | None = None


class TableChange(NamedTuple):
    """The last change of a row.

    Attributes:
        key: The key.
        value: The value; None: the row was removed.
        version: The version of the change.
        family: The family of the key; None: it has none.
        partition: The partition that the version belongs to.
    """

    key: bytes
    value: bytes | None
    version: int
    family: bytes | None
    partition: int


def _check_bytes(what: str, value: Any) -> None:
    if not isinstance(value, bytes):
        raise InvalidArgument(f"the {what} of a row is bytes, not {type(value).__name__}")


def check_row_version(version: Any) -> int:
    """Return the version of a row. Raises InvalidArgument."""
    if type(version) is not int or not 1 <= version <= _VERSION_MAX:
        raise InvalidArgument(f"the version of a row is a whole number above 0, not {version!r}")
    return version


def checked_row_key(key: Any, family: Any) -> bytes:
    """Return the row key of a key and a family. Raises InvalidArgument."""
    _check_bytes("key", key)
    if family is not None:
        _check_bytes("family", family)
    return row_key(key, family)


@dataclass(frozen=True, slots=True)
class TablePut:
    """Sets a row, in an update.

    Raises:
        InvalidArgument: An argument is not valid, or both conditions are given.

    Example:
        >>> TablePut(b"k", b"v", if_absent=True).if_version is None
        True
    """

    key: bytes
    value: bytes
    if_version: int | None = None
    """Only if the row is there in this version."""
    if_absent: bool = False
    """Only if the row is not there."""

    def __post_init__(self) -> None:
        checked_row_key(self.key, None)
        _check_bytes("value", self.value)
        if len(self.value) > TABLE_VALUE_BYTES_MAX:
            raise InvalidArgument(f"a value of {len(self.value)} bytes; the limit is {TABLE_VALUE_BYTES_MAX}")
        _check_condition(self.if_version, self.if_absent)

    def message(self, family: bytes | None) -> table_pb2.TableWrite:
        """Return what is sent. For the package's own use."""
        made = table_pb2.TableWrite(key=checked_row_key(self.key, family), value=self.value)
        return _with_condition(made, self.if_version, self.if_absent)


@dataclass(frozen=True, slots=True)
class TableDelete:
    """Removes a row, in an update. A row that is not there stays so.

    Raises:
        InvalidArgument: An argument is not valid.

    Example:
        >>> TableDelete(b"k", if_version=3).key
        b'k'
    """

    key: bytes
    if_version: int | None = None
    """Only if the row is there in this version."""

    def __post_init__(self) -> None:
        checked_row_key(self.key, None)
        _check_condition(self.if_version, False)

    def message(self, family: bytes | None) -> table_pb2.TableWrite:
        """Return what is sent. For the package's own use."""
        made = table_pb2.TableWrite(key=checked_row_key(self.key, family), remove=True)
        return _with_condition(made, self.if_version, False)


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A condition without a change, in an update.

    Raises:
        InvalidArgument: An argument is not valid, or not exactly one condition is given.

    Example:
        >>> TableCheck(b"k", if_absent=True).if_absent
        True
    """

    key: bytes
    if_version: int | None = None
    """The row is there in this version."""
    if_absent: bool = False
    """The row is not there."""

    def __post_init__(self) -> None:
        checked_row_key(self.key, None)
        _check_condition(self.if_version, self.if_absent)
        if self.if_version is None and not self.if_absent:
            raise InvalidArgument("a check has a condition: if_version or if_absent")

    def message(self, family: bytes | None) -> table_pb2.TableWrite:
        """Return what is sent. For the package's own use."""
        made = table_pb2.TableWrite(key=checked_row_key(self.key, family), check=True)
        return _with_condition(made, self.if_version, self.if_absent)


TableWrite = TablePut | TableDelete | TableCheck


def _check_condition(if_version: Any, if_absent: Any) -> None:
    if type(if_absent) is not bool:
        raise InvalidArgument(f"if_absent is True or False, not {if_absent!r}")
    if if_version is not None:
        check_row_version(if_version)
        if if_absent:
            raise InvalidArgument("a row cannot be absent and have a version")


def _with_condition(made: table_pb2.TableWrite, if_version: int | None, if_absent: bool) -> table_pb2.TableWrite:
    if if_absent:
        made.condition.absent = True
    elif if_version is not None:
        made.condition.version = if_version
    return made


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table.

    Attributes:
        name: "namespace/name".
        table_id: The id; never reused, unlike the name.
        partition_count: The number of partitions; never changes.
        replicas: Replicas of each range of a partition's log.
        acks: Replicas that hold a change durably before it is acked.
        tags: The tags.
        version: Raised by each change of the table's configuration.
        created_ms: Time of creation, milliseconds since the Unix epoch.
    """

    name: str
    table_id: int
    partition_count: int
    replicas: int
    acks: int
    tags: Mapping[str, str]
    version: int
    created_ms: int
