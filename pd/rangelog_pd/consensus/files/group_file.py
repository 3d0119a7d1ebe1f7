"""The group as a member that is being added has received it: kept until its log says more, so that it can start again.

What holds: the file appears whole or not at all; a damaged one is Corruption.

File: magic 8, crc32c u32 of the configuration, the configuration. Little endian.
"""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_pd.consensus.files.configuration import CONFIGURATION_BYTES_MAX, Configuration, decode, encode
from rangelog_pd.consensus.files.disk import REAL_FILES, Files, read_whole
from rangelog_pd.consensus.files.durable_file import write_atomically

_MAGIC = b"RLGROUP1"
_HEAD = struct.Struct("<8sI")


def write(path: Path, configuration: Configuration, *, files: Files = REAL_FILES) -> None:
    """Replace the file; durable on return. Raises OSError."""
    packed = encode(configuration)
    write_atomically(files, path, [_HEAD.pack(_MAGIC, google_crc32c.value(packed)), packed])


def read(path: Path, *, files: Files = REAL_FILES) -> Configuration | None:
    """Return the configuration, or None where there is no file. Raises Corruption."""
    data = read_whole(files, path, bytes_max=_HEAD.size + CONFIGURATION_BYTES_MAX)
    if data is None:
        return None
    packed = data[_HEAD.size :]
    if len(data) < _HEAD.size or _HEAD.unpack_from(data) != (_MAGIC, google_crc32c.value(packed)):
        raise Corruption(f"{path}: the checksum does not fit")
    try:
        return decode(packed)
    except ProtocolViolation as error:
        raise Corruption(f"{path}: {error}") from error
