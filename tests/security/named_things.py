"""Every field of a request by which a client can name something of another one: what guards it, and which cells show that.

A field that names nothing is in PLAIN. `tests/unit/core/test_named_things.py` compares both with the proto files: a field that
is in neither fails it.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Fields of one kind. `cells`: of PROBES in rights.py, or tests by their path."""

    fields: str
    guard: str
    cells: tuple[str, ...]


_PD, _BROKER = "tests/unit/pd/handlers", "tests/unit/broker"
_NEEDS = f"{_BROKER}/test_broker_needs.py::test_every_call_that_a_client_may_make_needs_something_known"

ROWS = (
    Row(
        "CreateStreamRequest.name DescribeStreamRequest.name DeleteStreamRequest.name UpdateStreamRequest.name "
        "TrimStreamRequest.name TrimStreamRequest.stream_id OpenWriterRequest.name OpenWriterRequest.stream_id "
        "ListRangesRequest.name ListRangesRequest.stream_id ListObjectsRequest.name ListObjectsRequest.stream_id "
        "CreateRangeRequest.stream_id SealRangeRequest.stream_id ProveEndRequest.stream_id PrepareRepackRequest.stream_id",
        "the call's verb on the stream; of a name beside an id, on both",
        (
            "pd describe", "pd create", "pd update", "pd delete", "pd trim", "pd trim by id", "pd open writer",
            "pd list ranges", "pd list objects", "pd create range", "pd seal", "pd prove end", "pd repack",
            f"{_PD}/test_pd_client_rights.py::test_an_id_beside_a_name_gives_no_way_around",
        ),
    ),
    Row(
        "Append.stream_id Confirm.stream_id Fetch.stream_id LookupTimestamp.stream_id Seal.stream_id CommitEnd.stream_id",
        "the frame's verb on the stream, or on the topic of the shard",
        (
            "data append", "data fetch", "data lookup", "data fence", "data commit end", "data fetch of a shard",
            "data append to a shard",
        ),
    ),
    Row(
        "Append.epoch Confirm.epoch Seal.epoch CommitEnd.epoch Fetch.recovery_epoch SealRangeRequest.epoch "
        "CreateRangeRequest.epoch OpenWriterRequest.expected_epoch",
        "the right on the stream: an epoch is none, whoever knows it",
        ("data append", "data fence", "data commit end", "data recovery fetch", "pd seal", "pd create range", "pd open writer"),
    ),
    Row(
        "WatchedStream.stream_id WatchedTopic.topic_id WatchRequest.begin_broker",
        "any verb on each as it is begun; of a broker, the right to administer everything",
        ("pd watch", "pd watch of another topic", "pd watch of another broker"),
    ),
    Row(
        "WatchRequest.session WatchRequest.end WatchRequest.end_topics",
        "a session is that of the principal that has opened it",
        (f"{_PD}/test_pd_watch.py::test_a_session_is_its_callers",),
    ),
    Row(
        "PrepareRepackRequest.object_ids PrepareRepackRequest.spoiled_object_id CommitRepackRequest.object_id",
        "they are of the stream on which the caller has the right",
        ("pd repack", "tests/unit/pd/state/test_pd_repacks.py::test_only_whole_ranges_are_repacked"),
    ),
    Row(
        "CursorSet.stream_id CursorSet.name GetCursorRequest.stream_id GetCursorRequest.name ListCursorsRequest.stream_id "
        "DeleteCursorRequest.stream_id DeleteCursorRequest.name",
        "read on the stream: its cursors are of all who read it, by any name",
        ("pd get cursor", "pd list cursors", "pd delete cursor"),
    ),
    Row(
        "TopicReference.topic_id TopicReference.name TopicReference.namespace CancelScaleRequest.topic_id "
        "CancelScaleRequest.scale_id CreateTopicRequest.name CreateTopicRequest.namespace CreateNamespaceRequest.name "
        "DeleteNamespaceRequest.name",
        "the call's verb on the topic or namespace",
        ("pd describe topic", "pd list shards", "pd update topic", "pd seal topic", "pd delete topic", "pd scale",
         "pd cancel scale"),
    ),
    Row(
        "ListStreamsRequest.prefix ListTopicsRequest.prefix ListTopicsRequest.namespace ListNamespacesRequest.prefix "
        "ListGroupsRequest.prefix ListGroupsRequest.journal ListTransactionsRequest.journal "
        "ListTransactionsRequest.transactional_id OpenGroupSessionRequest.group",
        "a list leaves out what the caller has no right on, or needs one on all that it may show",
        (f"{_PD}/test_pd_client_rights.py::test_lists_leave_out_what_a_client_may_do_nothing_to", "broker own transactions",
         "broker group session"),
    ),
    Row(
        "ListStreamsRequest.page_token ListTopicsRequest.page_token ListNamespacesRequest.page_token "
        "ListCursorsRequest.page_token ListShardsRequest.page_token ListGroupsRequest.page_token "
        "ListTransactionsRequest.page_token ListWatermarksRequest.after_number",
        "a place in a list that is checked anew with each page",
        (f"{_PD}/test_pd_client_rights.py::test_lists_leave_out_what_a_client_may_do_nothing_to", "pd list shards"),
    ),
    Row(
        "OwnedShard.topic_id OwnedShard.shard_id",
        "none: who owns a shard is told to every client; it names a broker, no topic",
        (),
    ),
    Row(
        "ReportBrokerLostRequest.name ReportBrokerLostRequest.incarnation",
        "none: a placement driver looks itself before it believes it",
        (f"{_PD}/test_pd_broker_calls.py::test_a_broker_that_refuses_connections_loses_its_shards_at_once",),
    ),
    Row(
        "CreateStreamRequest.request_id UpdateStreamRequest.request_id DeleteStreamRequest.request_id "
        "TrimStreamRequest.request_id OpenWriterRequest.request_id OpenWritersRequest.request_id CreateRangeRequest.request_id "
        "SealRangeRequest.request_id SealRangesRequest.request_id ProveEndRequest.request_id PrepareRepackRequest.request_id "
        "CommitRepackRequest.request_id CreateNamespaceRequest.request_id DeleteNamespaceRequest.request_id "
        "CreateTopicRequest.request_id UpdateTopicRequest.request_id DeleteTopicRequest.request_id SealTopicRequest.request_id "
        "TruncateTopicRequest.request_id StartScaleRequest.request_id CancelScaleRequest.request_id "
        "SetCursorsRequest.request_id DeleteCursorRequest.request_id",
        "a secret: 122 bits by lot, in no list and not in the audit log",
        (f"{_PD}/test_pd_audited.py::test_a_change_has_an_entry_before_it_is_made_and_one_after",),
    ),
    Row(
        "JoinGroupRequest.group HeartbeatGroupRequest.group LeaveGroupRequest.group CommitPositionsRequest.group "
        "ReleaseShardsRequest.group ReachCheckpointRequest.group StagePositionsRequest.group DescribeGroupRequest.group "
        "ResetGroupRequest.group RetainGroupRequest.group DeleteGroupRequest.group UnsubscribeGroupRequest.group "
        "RequestCheckpointRequest.group DescribeCheckpointRequest.group DeleteCheckpointRequest.group",
        "the call's verb on the group",
        (
            "door join another group", "door consumer of a stream, another group", "door dequeue", "door commit", "door end",
            "broker join", "broker HeartbeatGroup", "broker LeaveGroup", "broker CommitPositions", "broker ReleaseShards",
            "broker ReachCheckpoint", "broker group", "broker reset", "broker RetainGroup", "broker DeleteGroup",
            "broker UnsubscribeGroup", "broker RequestCheckpoint", "broker DescribeCheckpoint", "broker DeleteCheckpoint",
        ),
    ),
    Row(
        "GroupJoin.member HeartbeatGroupRequest.member LeaveGroupRequest.member GroupCommit.member GroupRelease.member "
        "GroupReach.member GroupCommit.joined GroupRelease.joined GroupReach.joined HeartbeatGroupRequest.joined "
        "LeaveGroupRequest.joined HeartbeatGroupRequest.token GroupPosition.since",
        "read on the group: its members trust each other; an earlier instance of a member is told by `joined`",
        ("broker HeartbeatGroup", "broker LeaveGroup", f"{_BROKER}/verbs/test_consume.py::test_a_consumer_is_of_its_principal",
         f"{_BROKER}/groups/test_group_machine.py::test_commands_of_an_earlier_instance_count_up_to_a_level"),
    ),
    Row(
        "GroupJoin.topic_ids GroupShard.topic_id GroupShard.shard_id UnsubscribeGroupRequest.topic_ids",
        "read on the topic where it is named as new or reset; otherwise the group has it already",
        ("broker join of another topic", "door join of another topic", "broker reset in another topic", _NEEDS),
    ),
    Row(
        "DescribeGroupRequest.group DescribeCheckpointRequest.group DescribeCheckpointRequest.name",
        "besides the group, any verb on each topic that the answer tells of",
        (
            f"{_BROKER}/groups/test_group_rights.py::test_a_topic_without_a_right_is_told_of_to_nobody",
            f"{_PD}/test_pd_acting.py::test_what_a_group_tells_of_a_topic_needs_a_right_on_the_topic",
        ),
    ),
    Row(
        "GroupCheckpoint.name GroupReset.checkpoint DeleteCheckpointRequest.name GroupReach.number",
        "they are of the group on which the caller has the right",
        ("broker RequestCheckpoint", "broker DeleteCheckpoint", "broker reset"),
    ),
    Row(
        "GroupProposal.session GroupProposal.sequence GroupProposal.settled InitTransactionsRequest.session "
        "InitTransactionsRequest.sequence ApplyTableRequest.session ApplyTableRequest.settled NumberedTableCommand.sequence "
        "OpenGroupSessionRequest.journal OpenTransactionSessionRequest.journal",
        "a secret: a session's number is drawn by lot; what counts on it is looked up under it",
        (f"{_BROKER}/journal/test_journal.py::test_a_session_is_its_proposers_alone",),
    ),
    Row(
        "GroupStage.transactional_id InitTransactionsRequest.transactional_id TransactionName.transactional_id "
        "Stage.transactional_id OpenTransactionSessionRequest.transactional_id",
        "append on the transactional id",
        (
            "broker stage positions of another program", "broker init of another program", "broker transaction",
            "broker BeginTransaction", "broker PingTransaction", "broker CommitTransaction", "broker DescribeTransaction",
            "broker stage of another program", "broker transaction session", _NEEDS,
        ),
    ),
    Row(
        "TransactionName.producer_id TransactionName.epoch TransactionName.number GroupStage.producer_id GroupStage.number "
        "Stage.number",
        "they are the transactional id's, as its coordinator gave them; an id's programs fence each other",
        (
            f"{_BROKER}/transactions/test_transactions_service.py::test_a_name_that_is_not_known",
            f"{_BROKER}/shards/test_staging_instances.py::test_what_a_coordinator_says_of_instances",
        ),
    ),
    Row(
        "Participant.topic_id Participant.shard_id Participant.group",
        "append on the topic, read on the group: the coordinator goes there under the broker's certificate",
        (
            "broker commit in another topic", "broker commit in another group",
            f"{_BROKER}/transactions/test_transactions_service.py::test_a_commit_names_only_what_its_client_may_use",
        ),
    ),
    Row(
        "GetRowsRequest.topic_id GetRowsRequest.shard_id ScanTableRequest.topic_id ScanTableRequest.shard_id "
        "WatchTableRequest.topic_id WatchTableRequest.shard_id OpenTableSessionRequest.topic_id "
        "OpenTableSessionRequest.shard_id ApplyTableRequest.topic_id ApplyTableRequest.shard_id",
        "the call's verb on the table",
        ("broker rows", "broker scan", "broker watch rows", "broker open session of a table", "broker put"),
    ),
    Row(
        "NoteTimeRequest.topic_id EndTimeNotesRequest.topic_id ListWatermarksRequest.topic_id",
        "the call's verb on the topic",
        ("broker times", "broker end times", "broker watermarks"),
    ),
    Row(
        "Produce.topic_id Produce.shard_id Stage.topic_id Stage.shard_id FindBatch.topic_id FindBatch.shard_id",
        "append on the topic",
        ("broker produce", "broker stage", "broker stage in another topic", "broker find"),
    ),
    Row(
        "TimeNote.producer_id TimeNote.producer_epoch TimeNote.number TimeNoteEnd.producer_id TimeNoteEnd.producer_epoch "
        "TimeNoteEnd.number FindBatch.producer_id FindBatch.producer_epoch FindBatch.sequence",
        "append on the topic, for each of its producers whose id is known: it is 63 bits by lot, and in the records",
        ("broker times", "broker end times", "broker find"),
    ),
    Row(
        "Hello.token",
        "it is checked by its signature",
        ("tests/unit/tls/test_token_ports.py::test_a_token_lets_in_and_nothing_else_does",),
    ),
)  # fmt: skip

PLAIN = {
    "Append": "confirm_offset memory range_index recovery start_offset",
    "CommitEnd": "end_offset range_index start_offset",
    "CommitRepackRequest": "digest encryption_key_id footer_crc footer_size_bytes packer size_bytes",
    "CommitTransactionRequest": "begin_next",
    "Confirm": "confirm_offset range_index start_offset",
    "CreateRangeRequest": "exclude_servers start_offset",
    "CreateTopicRequest": "shard_count",
    "CursorSet": "expected_version metadata offset",
    "DeleteCursorRequest": "expected_version",
    "DeleteStreamRequest": "expected_version",
    "DeleteTopicRequest": "expected_version force",
    "Fetch": "awaits_replica bytes_max confirm_wanted_offset credit_bytes end_offset known_end_offset offset range_index "
    "renews wait_ms_max",
    "FindBatch": "staged",
    "GetRowsRequest": "keys stale",
    "GroupCheckpoint": "every_ms",
    "GroupJoin": "session_ms",
    "GroupPosition": "metadata offset",
    "HeartbeatGroupRequest": "wait_ms",
    "Hello": "client features incarnation protocol_version protocol_version_min server",
    "InitTransactionsRequest": "timeout_ms",
    "KeyRange": "high low",
    "ListCursorsRequest": "page_size",
    "ListGroupsRequest": "page_size",
    "ListMembersRequest": "own_view",
    "ListNamespacesRequest": "page_size",
    "ListObjectsRequest": "from_offset knows_encryption page_size state",
    "ListRangesRequest": "from_index from_offset last_only page_size",
    "ListShardsRequest": "page_size selection since_map_version",
    "ListStreamsRequest": "page_size",
    "ListTopicsRequest": "page_size",
    "ListTransactionsRequest": "page_size",
    "ListWatermarksRequest": "from_ms page_size",
    "LookupTimestamp": "before_timestamp_ms known_end_offset range_index timestamp_ms",
    "NotedPosition": "offset shard_id",
    "OpenWriterRequest": "writer",
    "PrepareRepackRequest": "drops_trimmed encrypted incarnation packer",
    "ProveEndRequest": "end_offset range_index",
    "Replica": "data_address health incarnation reason server",
    "RetainGroupRequest": "retains",
    "Retention": "age_ms consumed shard_size_bytes",
    "RowGroup": "count start_offset timestamp_ms_max timestamp_ms_min",
    "ScalingPolicy": "factor kind shards_max shards_min target_per_s",
    "ScanTableRequest": "end limit stale start",
    "Seal": "range_index start_offset",
    "SealRangeRequest": "create_next end_offset exclude_servers exclude_strictly range_index",
    "SealTopicRequest": "expected_version",
    "SetTagsEntry": "key value",
    "ShardPosition": "offset shard_id",
    "StartScaleRequest": "map_version parents",
    "StreamConfig": "acks compression cursor_expiry_ms cursor_retention durability hot_retention_ms "
    "range_age_ms_max range_size_bytes_max replicas retention_bytes retention_ms server_labels tiered zones_min",
    "TableCondition": "absent version",
    "TableWrite": "check key remove value",
    "TagsEntry": "key value",
    "TimeNote": "time_ms",
    "TopicConfig": "kind",
    "TrimStreamRequest": "expected_version trim_offset",
    "UpdateStreamRequest": "expected_version fields",
    "UpdateTopicRequest": "expected_version fields remove_tags",
    "WatchRequest": "acked call wait_ms",
    "WatchTableRequest": "end limit since_version start wait_ms",
    "WatchedStream": "from_index",
    "WatchedTopic": "map_version",
}
"""By message: fields that name nothing of another client: sizes, offsets within what is named, times, flags, content."""
