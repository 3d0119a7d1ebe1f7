"""Write the golden files of the formats anew. A change of these files is a change of the format: raise its version.

Tiered objects are kept one for each version; only that of the present one is written anew (its bytes depend on the version
of Arrow as well).
"""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from rangelog_core.batch import CODEC_ZSTD, batch_crc, check_batch, encode_batch, encode_headers
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_core.frame import Opcode, encode_frame
from rangelog_core.versions import OBJECT_VERSIONS
from rangelog_files.event_file import EventFileWriter
from rangelog_files.events import Event
from rangelog_files.index_file import IndexWriter
from rangelog_proto.v1 import data_pb2
from rangelog_server.identity import DirectoryIdentity, pack_identity
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.state import ServerState, pack_epoch
from rangelog_server.ranges.store import Store
from rangelog_server.wal.entry import Kind, pack_sidecar
from rangelog_server.wal.files import rows_of
from rangelog_server.wal.log import Wal
from rangelog_server.wal.scan import scan_segment
from rangelog_tier.parquet import write_object

LOG_SALT = 5
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "unit" / "golden"


def batches() -> dict[str, str]:
    """One batch of each shape, as hex."""
    common: dict[str, Any] = {
        "stream_id": 7,
        "range_index": 3,
        "epoch": 11,
        "base_offset": 1000,
        "timestamps_ms": [5, 7, 6],
    }
    values = [b"alpha", b"", b"gamma" * 20]
    keys = [b"k", None, b""]
    headers = [encode_headers({"a": b"1", "ü": b""}), b"", b""]
    extension = encode_extension(
        {Tag.PRODUCER: encode_producer(Producer(21, 22, 23)), 0xFFFE: b"optional", 0xFFFF: b"x"}
    )
    critical = encode_extension({0x7FFF: b"", Tag.PRODUCER: encode_producer(Producer(21, 22, 23))})
    return {
        "values": encode_batch(**common, values=values).hex(),
        "keys": encode_batch(**common, values=values, keys=keys).hex(),
        "headers": encode_batch(**common, values=values, keys=keys, headers=headers).hex(),
        "extension": encode_batch(**common, values=values, keys=keys, extension=extension).hex(),
        "critical": encode_batch(**common, values=values, keys=keys, extension=critical).hex(),
        "zstd": encode_batch(**common, values=values, keys=keys, codec=CODEC_ZSTD).hex(),
    }


def greetings() -> dict[Opcode, Message]:
    """How a connection begins; see `messages`."""
    return {
        Opcode.HELLO: data_pb2.Hello(
            protocol_version=3,
            client="c",
            token="t",
            server="rs1",
            incarnation=2**63 + 5,
            protocol_version_min=2,
            features=["f", "g"],
        ),
        Opcode.HELLO_REPLY: data_pb2.HelloReply(
            protocol_version=3,
            server="rs1",
            incarnation=2**63 + 5,
            payload_bytes_max=9,
            protocol_version_min=2,
            protocol_version_max=4,
            features=["f", "h"],
        ),
    }


def reads() -> dict[Opcode, Message]:
    """The same of those with which a replica is read."""
    of: Any = {"stream_id": 7, "range_index": 3}
    return {
        Opcode.FETCH: data_pb2.Fetch(
            **of,
            offset=1000,
            bytes_max=4096,
            wait_ms_max=500,
            known_end_offset=2000,
            recovery_epoch=12,
            credit_bytes=8192,
            end_offset=1900,
            renews=True,
            confirm_wanted_offset=1950,
            awaits_replica=True,
        ),
        Opcode.FETCH_REPLY: data_pb2.FetchReply(
            start_offset=900,
            confirm_offset=1003,
            sealed_end_offset=2000,
            sealed=True,
            durable_offset=2001,
            last=True,
            doubtful=True,
            held=True,
        ),
        Opcode.LOOKUP_TIMESTAMP: data_pb2.LookupTimestamp(
            **of, timestamp_ms=-5, known_end_offset=2000, before_timestamp_ms=-4
        ),
        Opcode.LOOKUP_TIMESTAMP_REPLY: data_pb2.LookupTimestampReply(
            found=True, offset=1000, confirm_offset=1003, readable_end_offset=1002, until_offset=1001
        ),
    }


def messages() -> dict[Opcode, Message]:
    """One message of each opcode with every field set, each to another value, so that no two can change places."""
    of: Any = {"stream_id": 7, "range_index": 3}
    owned: Any = {"topic_id": 7, "shard_id": 3}
    other: Any = {"stream_id": 8, "range_index": 4, "epoch": 13}
    return (
        greetings()
        | reads()
        | {
            Opcode.APPEND: data_pb2.Append(
                **of, epoch=11, start_offset=900, confirm_offset=1000, recovery=True, memory=True
            ),
            Opcode.APPEND_REPLY: data_pb2.AppendReply(
                **of,
                epoch=11,
                durable_offset=1003,
                followed=True,
                confirm_wanted=True,
                leave_wanted=True,
                throttle_ms=250,
                others=[data_pb2.AppendReply(**other, durable_offset=1004)],
            ),
            Opcode.CONFIRM: data_pb2.Confirm(
                **of,
                epoch=11,
                confirm_offset=1003,
                others=[data_pb2.Confirm(**other, confirm_offset=1004)],
                start_offset=1000,
            ),
            Opcode.SEAL: data_pb2.Seal(**of, epoch=12, start_offset=900),
            Opcode.SEAL_REPLY: data_pb2.SealReply(
                outcome=data_pb2.SEAL_OUTCOME_DOUBTFUL,
                durable_offset=1003,
                last_batch_crc=0xDEADBEEF,
                confirm_offset=1000,
            ),
            Opcode.COMMIT_END: data_pb2.CommitEnd(**of, epoch=12, start_offset=900, end_offset=1003),
            Opcode.COMMIT_END_REPLY: data_pb2.CommitEndReply(complete=True, durable_offset=1003),
            Opcode.PRODUCE: data_pb2.Produce(**owned),
            Opcode.PRODUCE_REPLY: data_pb2.ProduceReply(
                offset=1003, throttle_ms=250, runs=[{"first": 1, "count": 2, "shard_id": 3, "offset": 4}]
            ),
            Opcode.STAGE: data_pb2.Stage(**owned, transactional_id="x", number=24),
            Opcode.FIND_BATCH: data_pb2.FindBatch(**owned, producer_id=21, producer_epoch=22, sequence=23, staged=True),
            Opcode.FIND_BATCH_REPLY: data_pb2.FindBatchReply(found=True, offset=1003),
            Opcode.ERROR: data_pb2.Error(code="FENCED", message="m", epoch=12, offset=1003, **of),
        }
    )


def frames() -> dict[str, dict[str, Any]]:
    """A frame of each opcode, as hex, with what it decodes to; two of them with a payload."""
    payloads = {
        Opcode.APPEND: b"payload",
        Opcode.PRODUCE: b"batch",
        Opcode.STAGE: b"staged",
        Opcode.FETCH_REPLY: b"batches",
    }
    made: dict[str, dict[str, Any]] = {}
    for opcode, message in messages().items():
        payload = payloads.get(opcode, b"")
        made[opcode.name.lower()] = {
            "hex": encode_frame(opcode, 42, message.SerializeToString(deterministic=True), payload).hex(),
            "request_id": 42,
            "payload": payload.decode(),
            "message": MessageToDict(message, preserving_proto_field_name=True),
        }
    return made


def objects() -> dict[str, dict[str, Any]]:
    """By version, an object's bytes as hex and what the placement driver knows of it."""
    place: dict[str, Any] = {"stream_id": 7, "range_index": 3, "epoch": 11}
    producer = Producer(producer_id=21, epoch=22, sequence=23)
    encoded = [
        encode_batch(
            **place,
            base_offset=1000 + 2 * number,
            timestamps_ms=[5 + number, 7],
            values=[b"v%d" % number, b""],
            keys=[None, b"k"],
            headers=[encode_headers({"h": b"x"}), b""],
            extension=encode_extension({Tag.PRODUCER: encode_producer(producer)}) if number == 1 else b"",
        )
        for number in range(3)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "object"
        span: dict[str, Any] = {"start_offset": 1000, "end_offset": 1006}
        written = write_object(path, encoded, stream_name="s", object_id=9, **place, **span)
        made = {
            "hex": path.read_bytes().hex(),
            "size_bytes": written.size_bytes,
            "digest": written.digest,
            "footer_size_bytes": written.footer_size_bytes,
            "footer_crc": written.footer_crc,
        }
    earlier: dict[str, dict[str, Any]] = json.loads((GOLDEN / "objects.json").read_text())
    return earlier | {str(OBJECT_VERSIONS.highest): made}


def log() -> dict[str, str]:
    """A segment with each kind of entry up to its END, its sidecar, and an identity, as hex."""
    with tempfile.TemporaryDirectory() as folder:
        segment = _segment(pathlib.Path(folder))
    found = scan_segment(segment, 1, LOG_SALT)
    sidecar = b"".join(pack_sidecar(LOG_SALT, 1, found.end, bytes(rows_of(list(found.entries)))))
    identity = pack_identity(DirectoryIdentity("rs1", 2**63 + 5, 3, LOG_SALT))
    return {"segment": segment.hex(), "sidecar": sidecar.hex(), "identity": identity.hex()}


def _segment(folder: pathlib.Path) -> bytes:
    store = Store(Wal(folder, LOG_SALT, segment_bytes=4096), cache_bytes=0)
    store.open()
    for stream_id in (1, 2):
        for base, count in ((0, 1), (1, 2)):
            made = [
                encode_batch(
                    stream_id=stream_id,
                    range_index=0,
                    epoch=1,
                    base_offset=base + number,
                    timestamps_ms=[5],
                    values=[b"value"],
                    extension=encode_extension({Tag.PRODUCER: encode_producer(Producer(21, 22, base))})
                    if base
                    else b"",
                )
                for number in range(count)
            ]
            message = data_pb2.Append(stream_id=stream_id, epoch=1, confirm_offset=base)
            new = [NewBatch(check_batch(data), batch_crc(data), data) for data in made]
            store.append(None, 0, message, new, b"".join(made))
            store.wal.kick()
    store.seal(1, 0, 7, 0, lambda hosted: None)
    store.commit_end(2, 0, 0, 3, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    store.drop(2, 0, lambda: None)
    for kind, payload in ((Kind.FLOOR, pack_epoch(1)), (Kind.SERVER, ServerState([1], [9], False).pack())):
        store.wal.submit(kind, 2 if kind is Kind.FLOOR else 0, 0, payload, payload)
    store.wal.kick()
    for first, last in ((0, 1), (1, 3)):
        plan = make_plan(store.replicas[1, 0], first, last)
        store.space.move(store.replicas[1, 0], plan, read_batches(store.wal, plan))
        store.wal.kick()
    store.wal.close()
    return (folder / "wal-0000000000000001.seg").read_bytes().rstrip(b"\0")


def events() -> dict[str, str]:
    """An event file with three blocks and its end, and its index, as hex."""
    blocks = [
        (1_401_408_000_000, [Event(b"alpha"), Event(b"", {"a": b"1", "ü": b""}, b"k", -5)]),
        (1_401_408_000_000, [Event(b"gamma" * 20, key=b"")]),
        (1_401_408_000_007, [Event(b"delta", timestamp_ms=1_401_408_000_003)]),
    ]
    file, index = EventFileWriter("golden", {"writer": "w"}), IndexWriter("golden", interval_bytes=100)
    data, entries = file.begin(), index.begin()
    for block in blocks:
        entries += index.block(block[0], file.offset)
        data += file.block(*block)
    return {"file": (data + file.end(1_401_408_000_009)).hex(), "index": entries.hex()}


def main() -> None:
    """Write all files."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    made = {"batches": batches(), "frames": frames(), "objects": objects(), "log": log(), "events": events()}
    for name, content in made.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
