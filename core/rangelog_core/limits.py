"""Every bound of the data model and the wire, each with its reason. All sizes are in bytes unless the name says else."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

OFFSET_MAX = (1 << 63) - 1
"""The end of every range and batch: offsets are signed in Arrow, Parquet and Spark."""

OFFSETS_GIVEN_UP = 1 << 41
"""Where an open range is lost, the stream goes on so much later. The range had fewer records: it has at most 2^40 bytes, and
what was under way when it was full is less."""

NAME_LENGTH_MAX = 200
"""A name becomes part of object keys; S3 keys end at 1,024 bytes."""

RECORD_SIZE_BYTES_MAX = 1 * MIB
"""Key, value and headers of one record. Larger things belong in the object store, with a reference in the log."""

BATCH_SIZE_BYTES_MAX = 8 * MIB
"""One encoded batch: what a replica checks, writes and answers as a whole, and what a recovery copies at least."""

BATCH_RECORDS_MAX = 65_536
"""Bounds the time to decode a batch (and what a hostile header can make a reader allocate)."""

HEADERS_PER_RECORD_MAX = 255
"""One byte counts them."""

TIMESTAMP_MS_MIN = -62_135_596_800_000
TIMESTAMP_MS_MAX = 253_402_300_799_999
"""Years 1 to 9999: what Python, Arrow in microseconds and Spark can all show."""

FRAME_MESSAGE_BYTES_MAX = 64 * KIB
"""The protobuf part of a frame: fixed fields only; the largest real one is under 300 bytes."""

FRAME_PAYLOAD_BYTES_MAX = BATCH_SIZE_BYTES_MAX + 64 * KIB
"""A frame carries at least one whole batch, whatever its size."""

FETCH_BYTES_MAX = BATCH_SIZE_BYTES_MAX
"""A fetch answers at least one batch and at most this much beyond it."""

FETCH_CREDIT_BYTES_MAX = 16 * MIB
"""A pushed fetch sends at most so many bytes ahead of its reader: more needs memory and adds no speed."""

FETCH_WAIT_MS_MAX = 30_000
"""The longest time of a long poll, so that the requests of dead readers end."""

FETCH_CREDIT_BYTES_MIN = 64 * KIB
"""What each fetch gets when the fetches of one client have used up their budget."""

FETCHES_BYTES_MAX = 256 * MIB
"""Credit of all fetches of one client that go on: what may wait in its memory to be read."""

INFLIGHT_BYTES_MAX = 8 * MIB
"""Appended and not acked, per writer. Also bounds what a failover seal has to copy."""

APPENDS_BYTES_MAX = 256 * MIB
"""Sent and not acked, of all writers of one client; each may have a batch in flight beyond it."""

BUDGET_BYTES_MIN = MIB
"""The least of these two that a program can ask for: one record of the largest size."""

REPLICA_LAG_BYTES_MAX = 64 * MIB
"""A replica this far behind the others is slow: the writer seals the range and leaves it. Bounds the writer's memory."""

RANGE_SIZE_BYTES_MAX_DEFAULT = 512 * MIB
RANGE_SIZE_BYTES_MIN = 64 * KIB
"""Smaller ranges make more metadata than data."""

STREAM_PAGE_SIZE_MAX = 1_000
RANGE_PAGE_SIZE_MAX = 1_000
OBJECT_PAGE_SIZE_MAX = 200
REPACKED_OBJECTS_MAX = 1_000
"""Objects that one repack replaces."""

ENCRYPTION_KEY_ID_LENGTH_MAX = 2_048
"""Of the id of an encryption key: an ARN has some hundred characters."""

REPACKED_RANGES_MAX = 4_096
"""Ranges whose records one repack joins: its commit changes each of them."""
"""An object's row-group index may have hundreds of entries; a page stays well below the gRPC message limit."""

CURSORS_PER_STREAM_MAX = 200
"""The placement driver looks at all of them where a stream's retention depends on them."""

CURSOR_METADATA_BYTES_MAX = 512
CURSOR_PAGE_SIZE_MAX = 100
CURSOR_SETS_MAX = 1_000
"""In one call."""

NAMESPACES_MAX = 1_000
TOPIC_PAGE_SIZE_MAX = 500
SHARD_PAGE_SIZE_MAX = 1_000

COMMAND_SHARDS_MAX = 1_000
"""Shards that one command creates or ends: their key ranges fit in one Raft command, and the work is bounded."""

TOPIC_SHARDS_MAX = 3_000
"""Current shards of one topic: a cut, with up to 18 bytes for each, fits in one Raft command."""

BROKERS_MAX = 1_000
ADDRESS_LENGTH_MAX = 300
"""A host's name has 253 characters at most."""

TAGS_MAX = 50
TAGS_BYTES_MAX = 2_048
"""All tags of a topic, keys and values: each change of a topic keeps a copy of them for a while."""

TABLE_KEY_BYTES_MAX = 4 * KIB
"""Key and family of a row, as they are stored."""

TABLE_VALUE_BYTES_MAX = RECORD_SIZE_BYTES_MAX - 6 * KIB
"""A row with its key fits in one record of its partition's log, alone or in a snapshot."""

TABLE_COMMAND_BYTES_MAX = RECORD_SIZE_BYTES_MAX - KIB
"""All writes of one update: one record as well."""

TABLE_WRITES_MAX = 1_000
"""Of one update."""

TABLE_COMMANDS_MAX = 1_000
TABLE_COMMANDS_BYTES_MAX = 4 * MIB
"""Of one request; together with the rest it stays below the gRPC message limit."""

TABLE_KEYS_MAX = 1_000
"""Keys that one request reads."""

TABLE_PAGE_ROWS_MAX = 1_000
"""Rows or changes of one response, about half a MiB of them."""

GRPC_MESSAGE_BYTES_MAX = 16 * MIB
"""Set on both ends; the library's default of 4 MiB is too little for a full report of a server's replicas."""

COMMAND_BYTES_MAX = 56 * KIB
"""One Raft command. The Raft library cuts commands near multiples of 64 KiB wrongly, so stay below the first."""
