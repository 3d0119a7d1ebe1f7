"""When the cluster version may rise: by itself, or by an operator's word.

What holds: it rises to a level that every member has announced to this leader, no further. A member that was not heard of since
this leader started counts as older. An operator's word also waits for range servers and brokers, unless it says otherwise: they
are no members, so nothing breaks, but a way back for them ends where they write what only the new program reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rangelog_pd.state.store import CLUSTER_VERSION_FIRST

LISTED_MAX = 20
"""Hindrances in one answer."""


class Announced(NamedTuple):
    """One process and the feature level of its program; 0: the process did not report it."""

    name: str
    feature_level: int


def common_level(levels: Iterable[int]) -> int:
    """Return the highest level that all members have; 0 while one of them is not known."""
    return min(levels, default=0)


def rises_by_itself(cluster_version: int, common: int, *, auto_finalize: bool) -> bool:
    """Whether a leader raises the cluster version without being asked.

    A cluster that never had another version than the first is new: it has nothing to go back to, so an operator is not asked.
    """
    return common > cluster_version and (auto_finalize or cluster_version == CLUSTER_VERSION_FIRST)


def hindrances(
    level: int, members: Iterable[Announced], servers: Iterable[Announced], brokers: Iterable[Announced]
) -> list[str]:
    """Return what keeps the cluster version from being raised to a level, placement drivers first."""
    found = [_member(each, level) for each in members if each.feature_level != level]
    for kind, processes in (("range server", servers), ("broker", brokers)):
        found += [_other(kind, each, level) for each in processes if each.feature_level < level]
    return found


def _member(each: Announced, level: int) -> str:
    name = f"placement driver {each.name}"
    if not each.feature_level:
        return f"{name} was not heard of by this leader: start it, or remove it with `pdctl pd remove {each.name}`"
    if each.feature_level > level:
        return f"{name} has level {each.feature_level}, and the leader has {level}: upgrade the leader too"
    return f"{name} has level {each.feature_level}, and {level} is wanted: upgrade it"


def _other(kind: str, each: Announced, level: int) -> str:
    if not each.feature_level:
        return f"{kind} {each.name} tells no level: its program is older than level {level}, or it does not run"
    return f"{kind} {each.name} has level {each.feature_level}, and {level} is wanted: upgrade it"
