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

from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from rangelog_core import versions
from rangelog_core.errors import Unavailable, UnsupportedVersion
from rangelog_proto.v1 import pd_state_pb2

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

_TOPIC_ACTIONS = (
    "create_namespace",
    "delete_namespace",
    "create_topic",
    "update_topic",
    "seal_topic",
    "end_shard",
    "delete_topic",
    "truncate_topic",
    "start_scale",
    "cancel_scale",
    "commit_scale",
    "continue_topic",
    "register_broker",
    "mark_broker_lost",
    "assign_shards",
    "ensure_log",
    "start_own_scale",
    "retain_topic",
    "take_cuts",
    "report_consumed",
)
_OPERATIONS_ACTIONS = (
    "accept_loss",
    "begin_restore",
    "delete_cursor",
    "end_restore",
    "remove_server",
    "restore_rows",
    "retain_stream",
    "reupload_object",
    "set_cursors",
    "set_server_mode",
    "set_tier",
)
_LEVELS = (
    {"set_cluster_version": 2, "seal_ranges": 2, "open_writers": 2}
    | dict.fromkeys(_TOPIC_ACTIONS, LEVEL_TOPICS)
    | dict.fromkeys(("prepare_repack", "commit_repack"), LEVEL_REPACKS)
    | dict.fromkeys(_OPERATIONS_ACTIONS, LEVEL_OPERATIONS)
    | dict.fromkeys(("grant_rights", "revoke_rights", "enforce_rights"), LEVEL_RIGHTS)
    | dict.fromkeys(("set_audit", "note_audit", "mark_audit_written"), LEVEL_AUDIT)
    | dict.fromkeys(("create_token", "revoke_token"), LEVEL_TOKENS)
    | dict.fromkeys(("set_quota", "remove_quota"), LEVEL_QUOTAS)
)
"""By action; 1 where none is given."""


_FIELDS = {
    "create_stream": (("config.cursor_retention", LEVEL_OPERATIONS), ("config.cursor_expiry_ms", LEVEL_OPERATIONS)),
    "update_stream": (
        ("expected_version", 2),
        ("config.cursor_retention", LEVEL_OPERATIONS),
        ("config.cursor_expiry_ms", LEVEL_OPERATIONS),
    ),
    "delete_stream": (("expected_version", 2),),
    "trim_stream": (("expected_version", 2),),
    "open_writer": (("stream_id", LEVEL_OPERATIONS), ("expected_epoch", LEVEL_OPERATIONS)),
    "accept_loss": (
        ("survivor_end_offset", LEVEL_PACKING),
        ("given_up_servers", LEVEL_AUDIT),
        ("lacking_servers", LEVEL_BROKERS),
    ),
    "prepare_repack": (
        ("request.incarnation", LEVEL_PACKING),
        ("request.spoiled_object_id", LEVEL_PACKING),
        ("request.drops_trimmed", LEVEL_PACKING),
        ("request.encrypted", LEVEL_ENCRYPTION),
    ),
    "report_consumed": (("number", LEVEL_BROKERS),),
    "retain_topic": (("by_consumption", LEVEL_BROKERS),),
    "register_broker": (("feature_level", LEVEL_BROKERS),),
    "prepare_object": (("request.encrypted", LEVEL_ENCRYPTION),),
    "commit_object": (("encryption_key_id", LEVEL_ENCRYPTION),),
    "commit_repack": (("encryption_key_id", LEVEL_ENCRYPTION),),
    "audit_note": (("through", LEVEL_BROKERS),),
}
"""By action: fields, each with the level of commands in which that field is set."""
_ITEMS = {"open_writers": ("writers", "open_writer"), "note_audit": ("notes", "audit_note")}
"""Actions with items: their field, and what the fields of an item are listed under: the action that it alone would be."""

_CONFIGURING = ("create_stream", "update_stream", "create_topic", "update_topic")
_POLICY_FIELDS = ("zones_min", "server_labels")


def level_of(action: str) -> int:
    """Return the feature level that a command of this action needs."""
    return _LEVELS.get(action, FEATURE_LEVEL_MIN)


def needed_level(command: pd_state_pb2.Command) -> int:
    """Return the feature level that a command needs: that of its action, or of one of its fields."""
    action = command.WhichOneof("action") or ""
    level = level_of(action)
    if action in _FIELDS:
        level = max(level, _level_of_fields(action, getattr(command, action)))
    elif action in _ITEMS:
        field, single = _ITEMS[action]
        items = getattr(getattr(command, action), field)
        level = max([level, *(_level_of_fields(single, item) for item in items)])
    if level < LEVEL_OPERATIONS and _has_policy(action, getattr(command, action, None)):
        level = LEVEL_OPERATIONS
    return level


def _level_of_fields(action: str, operand: Message) -> int:
    return max((level for field, level in _FIELDS[action] if _is_set(operand, field)), default=FEATURE_LEVEL_MIN)


def _is_set(operand: Message, field: str) -> bool:
    """Whether a field has a value; one that is optional may have 0."""
    described = operand.DESCRIPTOR.fields_by_name.get(field)
    if described is not None and described.has_presence:
        return operand.HasField(field)
    return bool(attrgetter(field)(operand))


def _has_policy(action: str, operand: Any) -> bool:
    """Whether a configuration says which servers get replicas, or a server says what it is chosen by."""
    if action == "register_server":
        return bool(operand.rack or operand.labels)
    if action not in _CONFIGURING:
        return False
    config = operand.config.stream if action.endswith("topic") else operand.config
    named = getattr(operand, "fields", ())
    return bool(config.zones_min or config.server_labels) or any(
        name.removeprefix("stream.") in _POLICY_FIELDS for name in named
    )


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
