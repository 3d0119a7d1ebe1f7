"""The operations on the state: a row for each action of a command, with the feature level that a command of it needs."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.message import Message

from rangelog_pd.state import (
    audit,
    brokers,
    cursors,
    losses,
    namespaces,
    objects,
    quotas,
    ranges,
    repacks,
    restore,
    retention,
    reuploads,
    rights,
    server_modes,
    servers,
    shards,
    side_logs,
    streams,
    tier_stores,
    tokens,
    topics,
)
from rangelog_pd.state.batches import BATCHES
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import (
    FEATURE_LEVEL_MIN,
    LEVEL_AUDIT,
    LEVEL_BROKERS,
    LEVEL_ENCRYPTION,
    LEVEL_HOSTS,
    LEVEL_OPERATIONS,
    LEVEL_PACKING,
    LEVEL_QUOTAS,
    LEVEL_REPACKS,
    LEVEL_RIGHTS,
    LEVEL_TOKENS,
    LEVEL_TOPICS,
)
from rangelog_proto.v1 import pd_state_pb2


class Operation(NamedTuple):
    """One action.

    Args:
        apply: given the state, the operand and the time; returns the response. An error of the product is the result.
        level: the feature level that a command of it needs.
        fields: each with the level that a command needs in which that field is set.
    """

    apply: Callable[[State, Any, int], Message | None]
    level: int = FEATURE_LEVEL_MIN
    fields: tuple[tuple[str, int], ...] = ()


def _name_cluster(state: State, command: pd_state_pb2.NameCluster, now_ms: int) -> None:
    state.cluster_id = state.cluster_id or command.cluster_id


def _set_cluster_version(state: State, command: pd_state_pb2.SetClusterVersion, now_ms: int) -> None:
    state.cluster_version = max(state.cluster_version, command.version)
    state.owners.raise_version(state.cluster_version)


OPERATIONS: dict[str, Operation] = {
    "name_cluster": Operation(_name_cluster),
    "set_cluster_version": Operation(_set_cluster_version, 2),
    "create_stream": Operation(
        streams.create_stream,
        fields=(("config.cursor_retention", LEVEL_OPERATIONS), ("config.cursor_expiry_ms", LEVEL_OPERATIONS)),
    ),
    "update_stream": Operation(
        streams.update_stream,
        fields=(
            ("expected_version", 2),
            ("config.cursor_retention", LEVEL_OPERATIONS),
            ("config.cursor_expiry_ms", LEVEL_OPERATIONS),
        ),
    ),
    "delete_stream": Operation(streams.delete_stream, fields=(("expected_version", 2),)),
    "trim_stream": Operation(streams.trim_stream, fields=(("expected_version", 2),)),
    "open_writer": Operation(
        streams.open_writer, fields=(("stream_id", LEVEL_OPERATIONS), ("expected_epoch", LEVEL_OPERATIONS))
    ),
    "create_range": Operation(ranges.create_range),
    "seal_range": Operation(ranges.seal_range),
    "prove_end": Operation(ranges.prove_end),
    "drop_hot": Operation(ranges.drop_hot),
    "replace_replica": Operation(ranges.replace_replica),
    "register_server": Operation(servers.register_server, fields=(("host", LEVEL_HOSTS),)),
    "mark_log_end": Operation(servers.mark_log_end),
    "mark_log_ends": Operation(servers.mark_log_ends),
    "set_server_mode": Operation(server_modes.set_server_mode, LEVEL_OPERATIONS),
    "remove_server": Operation(server_modes.remove_server, LEVEL_OPERATIONS),
    "prepare_object": Operation(objects.prepare_object, fields=(("request.encrypted", LEVEL_ENCRYPTION),)),
    "commit_object": Operation(objects.commit_object, fields=(("encryption_key_id", LEVEL_ENCRYPTION),)),
    "abandon_object": Operation(objects.abandon_object),
    "collect_objects": Operation(objects.collect_objects),
    "prepare_repack": Operation(
        repacks.prepare_repack,
        LEVEL_REPACKS,
        (
            ("request.incarnation", LEVEL_PACKING),
            ("request.spoiled_object_id", LEVEL_PACKING),
            ("request.drops_trimmed", LEVEL_PACKING),
            ("request.encrypted", LEVEL_ENCRYPTION),
        ),
    ),
    "commit_repack": Operation(repacks.commit_repack, LEVEL_REPACKS, (("encryption_key_id", LEVEL_ENCRYPTION),)),
    "accept_loss": Operation(
        losses.accept_loss,
        LEVEL_OPERATIONS,
        (
            ("survivor_end_offset", LEVEL_PACKING),
            ("given_up_servers", LEVEL_AUDIT),
            ("lacking_servers", LEVEL_BROKERS),
        ),
    ),
    "reupload_object": Operation(reuploads.reupload_object, LEVEL_OPERATIONS),
    "set_tier": Operation(tier_stores.set_tier, LEVEL_OPERATIONS),
    "create_namespace": Operation(namespaces.create_namespace, LEVEL_TOPICS),
    "delete_namespace": Operation(namespaces.delete_namespace, LEVEL_TOPICS),
    "create_topic": Operation(topics.create_topic, LEVEL_TOPICS),
    "update_topic": Operation(topics.update_topic, LEVEL_TOPICS),
    "seal_topic": Operation(topics.seal_topic, LEVEL_TOPICS),
    "end_shard": Operation(shards.end_shard, LEVEL_TOPICS),
    "delete_topic": Operation(topics.delete_topic, LEVEL_TOPICS),
    "truncate_topic": Operation(topics.truncate_topic, LEVEL_TOPICS),
    "start_scale": Operation(shards.start_scale, LEVEL_TOPICS),
    "cancel_scale": Operation(shards.cancel_scale, LEVEL_TOPICS),
    "commit_scale": Operation(shards.commit_scale, LEVEL_TOPICS),
    "continue_topic": Operation(topics.continue_topic, LEVEL_TOPICS),
    "register_broker": Operation(
        brokers.register_broker,
        LEVEL_TOPICS,
        (("feature_level", LEVEL_BROKERS), ("endpoints", LEVEL_BROKERS), ("host", LEVEL_HOSTS)),
    ),
    "mark_broker_lost": Operation(brokers.mark_broker_lost, LEVEL_TOPICS),
    "assign_shards": Operation(brokers.assign_shards, LEVEL_TOPICS),
    "ensure_log": Operation(side_logs.ensure_log, LEVEL_TOPICS),
    "start_own_scale": Operation(shards.start_own_scale, LEVEL_TOPICS),
    "retain_topic": Operation(retention.retain_topic, LEVEL_TOPICS, (("by_consumption", LEVEL_BROKERS),)),
    "take_cuts": Operation(retention.take_cuts, LEVEL_TOPICS),
    "report_consumed": Operation(retention.report_consumed, LEVEL_TOPICS, (("number", LEVEL_BROKERS),)),
    "set_cursors": Operation(cursors.set_cursors, LEVEL_OPERATIONS),
    "delete_cursor": Operation(cursors.delete_cursor, LEVEL_OPERATIONS),
    "retain_stream": Operation(cursors.retain_stream, LEVEL_OPERATIONS),
    "begin_restore": Operation(restore.begin_restore, LEVEL_OPERATIONS),
    "restore_rows": Operation(restore.restore_rows, LEVEL_OPERATIONS),
    "end_restore": Operation(restore.end_restore, LEVEL_OPERATIONS),
    "grant_rights": Operation(rights.grant_rights, LEVEL_RIGHTS),
    "revoke_rights": Operation(rights.revoke_rights, LEVEL_RIGHTS),
    "enforce_rights": Operation(rights.enforce_rights, LEVEL_RIGHTS),
    "set_audit": Operation(audit.set_audit, LEVEL_AUDIT),
    "note_audit": Operation(audit.note_audit, LEVEL_AUDIT),
    "mark_audit_written": Operation(audit.mark_audit_written, LEVEL_AUDIT),
    "create_token": Operation(tokens.create_token, LEVEL_TOKENS),
    "revoke_token": Operation(tokens.revoke_token, LEVEL_TOKENS),
    "set_quota": Operation(quotas.set_quota, LEVEL_QUOTAS),
    "remove_quota": Operation(quotas.remove_quota, LEVEL_QUOTAS),
}

_LEVEL_BATCHES = 2
_ITEMS = {
    "open_writers": ("writers", OPERATIONS["open_writer"].fields),
    "note_audit": ("notes", (("through", LEVEL_BROKERS),)),
}
"""Actions with items: their field, and fields of an item, each with its level."""

_CONFIGURING = ("create_stream", "update_stream", "create_topic", "update_topic")
_POLICY_FIELDS = ("zones_min", "server_labels")


def level_of(action: str) -> int:
    """Return the feature level that a command of this action needs."""
    found = OPERATIONS.get(action)
    return found.level if found is not None else _LEVEL_BATCHES if action in BATCHES else FEATURE_LEVEL_MIN


def needed_level(command: pd_state_pb2.Command) -> int:
    """Return the feature level that a command needs: that of its action, or of one of its fields."""
    action = command.WhichOneof("action") or ""
    level = level_of(action)
    if action in _ITEMS:
        field, fields = _ITEMS[action]
        items = getattr(getattr(command, action), field)
        level = max([level, *(_level_of_fields(fields, item) for item in items)])
    elif action in OPERATIONS:
        level = max(level, _level_of_fields(OPERATIONS[action].fields, getattr(command, action)))
    if level < LEVEL_OPERATIONS and _has_policy(action, getattr(command, action, None)):
        level = LEVEL_OPERATIONS
    return level


def _level_of_fields(fields: tuple[tuple[str, int], ...], operand: Message) -> int:
    return max((level for field, level in fields if _is_set(operand, field)), default=FEATURE_LEVEL_MIN)


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
