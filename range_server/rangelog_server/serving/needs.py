"""Which right a frame of the data plane needs, on its stream."""

from __future__ import annotations

from rangelog_core.rights import Verb
from rangelog_proto.v1 import data_pb2
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_STREAM

READS = int(Verb.READ)
APPENDS = int(Verb.APPEND)
ENDS = int(Verb.APPEND | Verb.SEAL)
"""Whoever seals a range fences it, looks at its end, copies what lacks copies, and commits the end."""


_KIND = int(RESOURCE_KIND_STREAM)


def resource(stream_id: int) -> tuple[int, int]:
    """Return what rights are asked about."""
    return _KIND, stream_id


def verbs_of_append(message: data_pb2.Append) -> int:
    """Return the verbs of which an append needs one."""
    return ENDS if message.recovery else APPENDS


def verbs_of_fetch(message: data_pb2.Fetch) -> int:
    """Return the verbs of which a fetch needs one; that of a recovery is served to the holder of the fence only."""
    return READS | ENDS if message.recovery_epoch else READS
