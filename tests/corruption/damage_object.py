"""A tiered object damaged in every byte and cut at every length: a reader gets the true records or Corruption."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.batch import encode_batch
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_core.errors import Corruption
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_tier import parquet
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.object_store import ObjectInfo, ObjectTooShort
from tests.corruption.damage_tally import Damages, Thoroughness

KEY = "streams/1/ranges/0/object.parquet"
PER_BATCH = 10
MAGIC_BYTES = 4
"""At the beginning, which nobody looks at."""


class OneObject:
    """An object store that holds one object. What it holds may change, and one of its answers may be wrong."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked = 0
        self.wrong_answer = -1
        self.wrong_data = b""

    def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return self.data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        data = self.wrong_data if self.asked == self.wrong_answer else self.data
        self.asked += 1
        found = data[start : start + length]
        if len(found) != length:
            raise ObjectTooShort(f"object {key} is shorter than what was asked of it")
        return found

    def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return ObjectInfo(key, len(self.data), "")


def write(path: Path, values: list[bytes]) -> common_pb2.Object:
    """Write an object of several batches; return what the placement driver knows of it."""
    batches = [
        encode_batch(
            stream_id=1,
            range_index=0,
            epoch=1,
            base_offset=base,
            timestamps_ms=list(range(base, base + PER_BATCH)),
            values=values[base : base + PER_BATCH],
            extension=encode_extension({Tag.PRODUCER: encode_producer(Producer(7, 1, base))} if base else {}),
        )
        for base in range(0, len(values), PER_BATCH)
    ]
    place = {"stream_id": 1, "range_index": 0, "start_offset": 0, "end_offset": len(values)}
    written = parquet.write_object(path, batches, stream_name="s", epoch=1, **place)  # type: ignore[arg-type]
    return common_pb2.Object(
        **place,  # type: ignore[arg-type]
        key=KEY,
        size_bytes=written.size_bytes,
        digest=written.digest,
        row_groups=written.row_groups,
        footer_size_bytes=written.footer_size_bytes,
        footer_crc=written.footer_crc,
    )


class ObjectDamage:
    """See the module."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.tally = Damages()
        self._chance = Random(seed)
        values = [self._chance.randbytes(self._chance.randrange(8)) for _ in range(3 * PER_BATCH)]
        path = directory / "object"
        self._described = write(path, values)
        self._store = OneObject(path.read_bytes())
        self._true = self._read()
        assert [record.value for record in self._true[0]] == values
        assert len(self._true[1]) == 2

    def _read(self) -> tuple[list[Record], list[Any]]:
        """All records, and all headers of batches with an extension."""
        end = self._described.end_offset
        tables = read_object(self._store, self._described, 0, end)  # type: ignore[arg-type]
        records = [record for table in tables for record in records_from_arrow(table)]
        reader = ObjectReader(self._store, self._described)  # type: ignore[arg-type]
        return records, [one for group in reader.row_groups(0, end) for one in reader.batch_headers(group)]

    def run(self, how: Thoroughness) -> Damages:
        """Flipped and cut."""
        true = self._store.data
        for position, mask in how.flips(len(true), self._chance):
            self.tally.flips += 1
            changed = true[:position] + bytes([true[position] ^ mask]) + true[position + 1 :]
            self._try(changed, f"bit {mask:#04x} of byte {position} flipped", position < MAGIC_BYTES)
        for length in how.cuts(len(true), self._chance):
            self.tally.cuts += 1
            self._try(true[:length], f"cut at {length}", False)
        self._store.data = true
        self._wrong_once(how)
        return self.tally

    def _wrong_once(self, how: Thoroughness) -> None:
        """The object is whole; one answer is not: asked again, the store tells the truth."""
        store, true = self._store, self._store.data
        for answer in range(2):
            store.wrong_answer = answer
            for position, mask in how.flips(len(true), self._chance):
                self.tally.wrong_answers += 1
                store.wrong_data = true[:position] + bytes([true[position] ^ mask]) + true[position + 1 :]
                self._ask(f"answer {answer}: bit {mask:#04x} of byte {position} flipped")
            for length in how.cuts(len(true), self._chance):
                self.tally.wrong_answers += 1
                store.wrong_data = true[:length]
                self._ask(f"answer {answer}: short, as if the object had {length} bytes")
        store.wrong_answer = -1

    def _ask(self, what: str) -> None:
        self._store.asked = 0
        try:
            found = self._read()
        except Exception as error:  # the object is whole: there is no reason for one
            self.tally.problems.append(f"object: {what}: {type(error).__name__}: {error}")
            return
        if found != self._true:
            self.tally.served_wrong += 1
            self.tally.problems.append(f"object: {what}: other records were served")

    def _try(self, data: bytes, what: str, harmless: bool) -> None:
        self._store.data = data
        try:
            found = self._read()
        except Corruption as error:
            assert KEY in error.message
            self.tally.outcomes["detected when read"] += 1
            return
        except Exception as error:  # whatever else it is, it is not a typed error
            self.tally.problems.append(f"object: {what}: {type(error).__name__}: {error}")
            return
        self.tally.outcomes["harmless"] += 1
        if found != self._true:
            self.tally.served_wrong += 1
            self.tally.problems.append(f"object: {what}: other records were served")
        elif not harmless:
            self.tally.problems.append(f"object: {what}: nobody noticed")
