"""A configuration: the members of a group, as a log entry and a snapshot have it.

What holds: an entry has the whole configuration, so that the last one in the log is the one that counts; bytes that are no
configuration are refused before any of them is used. The group's identity never changes: members of another group do not
connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rangelog_core.errors import InvalidArgument, ProtocolViolation
from rangelog_core.ids import check_name
from rangelog_core.net.addresses import split_address
from rangelog_pd.consensus.files.packing import check_kinds, pack, unpack

GROUP_BYTES = 32
MEMBERS_MAX = 16
"""A bound for what is read; a group has far fewer (rules/changes.py)."""
CONFIGURATION_BYTES_MAX = 32 * 1024
_VERSION = 1


@dataclass(frozen=True)
class RaftMember:
    """One member. A learner (`voter` false) gets the log and does not count. `replaces`: the member that goes once this one
    votes."""

    name: str
    raft_address: str
    api_address: str
    voter: bool = True
    replaces: str = ""


@dataclass(frozen=True)
class Configuration:
    """The members in the order of their names."""

    group: bytes
    members: tuple[RaftMember, ...]

    @cached_property
    def voters(self) -> frozenset[str]:
        """The names of those that elect and count."""
        return frozenset(member.name for member in self.members if member.voter)

    @cached_property
    def by_name(self) -> Mapping[str, RaftMember]:
        """All members."""
        return {member.name: member for member in self.members}

    def with_members(self, members: Iterable[RaftMember]) -> Configuration:
        """Return the same group with other members."""
        return replace(self, members=tuple(sorted(members, key=lambda member: member.name)))


NOBODY = Configuration(bytes(GROUP_BYTES), ())
"""Of a member that does not know its group yet."""


def encode(configuration: Configuration) -> bytes:
    """Return the bytes of a configuration."""
    rows = [
        [member.name, member.raft_address, member.api_address, member.voter, member.replaces]
        for member in configuration.members
    ]
    return pack([_VERSION, configuration.group, rows])


def decode(data: bytes) -> Configuration:
    """Decode a configuration. Raises ProtocolViolation."""
    if len(data) > CONFIGURATION_BYTES_MAX:
        raise ProtocolViolation(f"a configuration of {len(data)} bytes")
    fields = unpack(data)
    check_kinds(fields, [(int,), (bytes,), (list,)])
    version, group, rows = fields
    if version != _VERSION or not isinstance(group, bytes) or len(group) != GROUP_BYTES or not isinstance(rows, list):
        raise ProtocolViolation("a configuration of another version")
    if not 1 <= len(rows) <= MEMBERS_MAX:
        raise ProtocolViolation(f"a configuration of {len(rows)} members")
    members = tuple(_member(row) for row in rows)
    names = [member.name for member in members]
    if names != sorted(set(names)) or not any(member.voter for member in members):
        raise ProtocolViolation("a configuration out of order, or without a voter")
    return Configuration(group, members)


def check_member(name: str, raft_address: str, api_address: str) -> None:
    """Raise InvalidArgument for what no member can have. The API address may be unknown: empty."""
    check_name("placement driver", name)
    split_address(raft_address, port_min=0)
    if api_address:
        split_address(api_address, port_min=0)


def _member(row: Any) -> RaftMember:
    if type(row) is not list:
        raise ProtocolViolation("a member is not a list")
    check_kinds(row, [(str,), (str,), (str,), (bool,), (str,)])
    try:
        check_member(row[0], row[1], row[2])
    except InvalidArgument as error:
        raise ProtocolViolation(f"a configuration with a bad member: {error}") from error
    return RaftMember(*row)
