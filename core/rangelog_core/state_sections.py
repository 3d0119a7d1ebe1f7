"""The sections of a placement driver's state: how they are framed, for the placement driver and for who restores a cluster.

What holds: a list of sections that is cut short, or goes on behind its end, is Corruption.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from rangelog_core.errors import Corruption
from rangelog_proto.v1 import pd_state_pb2
from rangelog_proto.v1.pd_state_pb2 import Section, SectionKind

SECTION_VERSION = 1
MAGIC = b"\xffRLS"
"""No StateSnapshot of feature level 1 starts with these bytes: 0xff is no protobuf tag of it."""
_SIZE = struct.Struct("<I")


def framed(kind: SectionKind, rows: bytes) -> bytes:
    """Return one section with its size."""
    section = Section(kind=kind, version=SECTION_VERSION, rows=rows).SerializeToString(deterministic=True)
    return _SIZE.pack(len(section)) + section


def sections(data: bytes) -> Iterator[Section]:
    """Yield the sections before the last one, whatever their kinds and versions. Raises Corruption."""
    if not data.startswith(MAGIC):
        raise Corruption("this is no placement driver's snapshot")
    view, position = memoryview(data), len(MAGIC)
    while True:
        if position + _SIZE.size > len(view):
            raise Corruption("the placement driver's snapshot ends too early")
        (size,) = _SIZE.unpack_from(view, position)
        position += _SIZE.size
        if size > len(view) - position:
            raise Corruption("the placement driver's snapshot ends too early")
        try:
            section = Section.FromString(bytes(view[position : position + size]))
        except DecodeError as error:
            raise Corruption("the placement driver's snapshot cannot be read") from error
        position += size
        if section.kind == pd_state_pb2.SECTION_KIND_END:
            if position != len(view):
                raise Corruption("the placement driver's snapshot continues after its end")
            return
        yield section
