"""Feature levels: how members of different programs stay one state machine while they are upgraded one by one.

What holds:

* A feature level is raised by one whenever a program can propose something that earlier programs do not apply the same way:
  a new action, a new field that matters, another rule. What a level means is never changed afterwards.
* A command names the level that it needs. The cluster version in the state is a level that all members have announced; a
  leader proposes only commands of at most that level, so a program of an earlier level never meets one that it does not know.
* The cluster version rises, once all members announce a higher level, and never falls: from then on earlier programs are out.
* A member that meets a command or a snapshot beyond its own level stops and changes nothing. To answer and to go on would
  make its state another one than its peers'. Its log is kept: a newer program reads it.
* A rule of applying that has changed holds from a cluster version on: that is in the state, so all members follow it from the
  same command on.
* Defaults are filled in by the proposer, so a program with other defaults applies a command to the same effect.
"""

from __future__ import annotations

from rangelog_core.errors import Unavailable, UnsupportedVersion
from rangelog_proto.v1 import pd_state_pb2

FEATURE_LEVEL_MIN = 1
FEATURE_LEVEL = 3
"""Of this program."""

LEVEL_EMPTY_RANGES = 3
"""From this cluster version on, a new range takes the place of the empty sealed ranges before it."""

_LEVELS = {"set_cluster_version": 2, "seal_ranges": 2, "open_writers": 2}
"""By action; 1 where none is given."""


_FIELDS = {
    "update_stream": ("expected_version", 2),
    "delete_stream": ("expected_version", 2),
    "trim_stream": ("expected_version", 2),
}
"""By action: a field of it, and the level of commands in which it is set."""


def level_of(action: str) -> int:
    """Return the feature level that a command of this action needs."""
    return _LEVELS.get(action, FEATURE_LEVEL_MIN)


def needed_level(command: pd_state_pb2.Command) -> int:
    """Return the feature level that a command needs: that of its action, or of a field in it that matters."""
    action = command.WhichOneof("action") or ""
    level = level_of(action)
    if action in _FIELDS and getattr(getattr(command, action), _FIELDS[action][0]):
        level = max(level, _FIELDS[action][1])
    return level


def check_known(level: int, own_level: int, what: str) -> None:
    """Raise UnsupportedVersion when something is of a level that this member does not have."""
    if level > own_level:
        raise UnsupportedVersion(
            f"{what} needs feature level {level}, and this placement driver has {own_level}: it is older than the "
            "cluster, so it stops before its state differs; start it with the program that the other members run"
        )


def check_enabled(level: int, cluster_version: int, action: str) -> None:
    """Raise Unavailable when a command may not be proposed yet, since members of an earlier level are there."""
    if level > cluster_version:
        raise Unavailable(
            f"{action.replace('_', ' ')} needs cluster version {level}, and this cluster is at {cluster_version}: "
            "upgrade all placement drivers (`pdctl cluster status` shows their levels)"
        )
