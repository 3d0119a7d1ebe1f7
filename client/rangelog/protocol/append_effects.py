"""What the core of a writer asks for, and the range that it writes to. See appender.py, which says when.

What holds: each effect is a value; the core hands it out once, and learns what came of it by an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rangelog.protocol.window import SentBatch
from rangelog_core.errors import RangelogError
from rangelog_core.ids import ReplicaId


@dataclass(frozen=True, slots=True)
class OpenRange:
    """The open range of the writer, as the placement driver created it."""

    index: int
    start_offset: int
    acks: int
    replicas: tuple[ReplicaId, ...]
    created_ms: float  # on the clock of `now_ms`
    size_bytes_max: int
    age_ms_max: int


class Connect(NamedTuple):
    """Connect to this replica for this range, report `connected` or `disconnected`, and reconnect until the range is left."""

    range_index: int
    replica: ReplicaId


class Send(NamedTuple):
    """Send these consecutive batches to connected replicas."""

    range_index: int
    replicas: Sequence[ReplicaId]
    batches: Sequence[SentBatch]
    confirm_offset: int


class SendConfirm(NamedTuple):
    """Send the confirm offset to the replicas by itself, since no batch follows that carries it."""

    range_index: int
    replicas: Sequence[ReplicaId]
    confirm_offset: int


class Confirmed(NamedTuple):
    """Resolve the application's appends below `offset`: they are acked."""

    confirm_offset: int


class Probe(NamedTuple):
    """Find out whether the placement driver answers and has servers for another range, and report `probed`.

    The confirm offset is not frozen before that: while there is no better placement, the writer keeps the range. There are
    servers when at least `servers_min` are alive; with `strictly`, excluded ones do not count.
    """

    exclude_servers: tuple[str, ...]
    strictly: bool
    servers_min: int


class SealRange(NamedTuple):
    """Request the seal and the next range until a reply; report `sealed`, `seal_refused`, `floor_refused` or `fenced`."""

    range_index: int
    end_offset: int
    exclude_servers: tuple[str, ...]
    strictly: bool


class Leave(NamedTuple):
    """Send the committed end to the old range's replicas, in the background, and drop their links."""

    range_index: int
    start_offset: int
    end_offset: int
    replicas: tuple[ReplicaId, ...]


class NoRoom(NamedTuple):
    """Fail the application's waits: these servers have no room, and there are no others. The writer goes on trying."""

    servers: tuple[str, ...]


class Stopped(NamedTuple):
    """The writer has ended: fail all pending appends with this error."""

    error: RangelogError


Effect = Connect | Send | SendConfirm | Confirmed | Probe | SealRange | Leave | NoRoom | Stopped
