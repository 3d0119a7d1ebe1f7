"""Feature levels: members with different programs remain one state machine while they are upgraded one by one.

What holds:

* A feature level is raised by one whenever a program can propose a command that earlier programs do not apply in the same way:
  a new action, a new field that matters, another rule. The meaning of a level never changes afterwards.
* A command names the level that it needs. The cluster version in the state is a level that all members have announced; a
  leader proposes only commands of at most that level, so a program of an earlier level never gets an unknown one.
* The cluster version rises once all members announce a higher level, and never falls: earlier programs cannot join then.
* A member that gets a command or a snapshot above its own level stops and changes nothing. If it replied and continued, its
  state would differ from its peers'. Its log is kept: a newer program reads it.
* A changed rule of applying holds from a cluster version on: that is in the state, so all members follow it from the same
  command on.
* Defaults are filled in by the proposer, so a program with other defaults applies a command with the same effect.
"""

from __future__ import annotations

from rangelog_core import versions
from rangelog_core.errors import Unavailable, UnsupportedVersion

FEATURE_LEVEL_MIN = 1
FEATURE_LEVEL = versions.FEATURE_LEVEL
"""Of this program."""

LEVEL_EMPTY_RANGES = 3
"""From this cluster version on, a new range takes the place of the empty sealed ranges before it."""

LEVEL_TOPICS = 4
LEVEL_REPACKS = 5
LEVEL_OPERATIONS = 6
LEVEL_PACKING = 7
"""From this cluster version on, range servers repack by directive, objects lose their trimmed rows, and the loss of an open
range can be accepted."""

LEVEL_RIGHTS = 8
"""From this cluster version on, there are rules of what clients may do."""

LEVEL_AUDIT = 9
"""From this cluster version on, there is an audit log."""

LEVEL_ENCRYPTION = versions.LEVEL_ENCRYPTION
"""From this cluster version on, objects of the tier may be encrypted."""

LEVEL_TOKENS = 10
"""From this cluster version on, placement drivers sign tokens."""

LEVEL_QUOTAS = 11
"""From this cluster version on, there are quotas."""

LEVEL_BROKERS = versions.LEVEL_BROKERS
"""From this cluster version on, there is a broker version, and of what a group reports as consumed the last report counts. An
entry of the audit log names the broker that called for its principal."""

LEVEL_HOSTS = 13
"""From this cluster version on, range servers and brokers have hosts."""


def check_known(level: int, own_level: int, what: str) -> None:
    """Raise UnsupportedVersion for a level that this member does not have."""
    if level > own_level:
        raise UnsupportedVersion(
            f"{what} needs feature level {level}, and this placement driver has {own_level}: it is older than the "
            "cluster, so it stops before its state differs; start it with the program that the other members run"
        )


def check_enabled(level: int, cluster_version: int, action: str) -> None:
    """Raise Unavailable when a command must not be proposed yet, since the group has members of an earlier level."""
    if level > cluster_version:
        raise Unavailable(
            f"{action.replace('_', ' ')} needs cluster version {level}, and this cluster is at {cluster_version}: "
            "upgrade all placement drivers (`pdctl cluster status` shows their levels)"
        )
