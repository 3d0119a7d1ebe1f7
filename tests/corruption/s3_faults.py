"""The production uploader and cold reader against the lying S3: nothing unverified is committed, nothing wrong is served."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.loaders import Loader, create_loader

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog._read.look_ahead import LookAhead
from rangelog._read.object_fetcher import ObjectFetcher
from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import RangelogError
from rangelog_core.object_keys import object_key
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.tier import upload
from rangelog_server.tier.upload import Uploader
from rangelog_server.wal.log import Wal
from rangelog_tier import open_object_store, s3_store
from rangelog_tier.s3_store import PART_BYTES
from tests.corruption.lying_s3 import LyingS3
from tests.fakes.faces import LogDisk
from tests.support.pd_calls import CallsByName

TRIES_MAX = 60
TRIES_WITH_FAULTS = 25
RECORDS = 60
CLIENT_TIMEOUT_S = 0.3
SMALL_PART_BYTES = 3000
"""Objects are larger: they are sent in parts."""


@cache
def described_once(data_path: str | None) -> Loader:
    """botocore's descriptions of services, read once for all clients: most of the time that a client takes to be made."""
    return create_loader(data_path)


@contextmanager
def impatient() -> Iterator[None]:
    """Credentials that nobody needs, short timeouts and pauses, and no log."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setattr(s3_store, "READ_TIMEOUT_S", CLIENT_TIMEOUT_S)
        patch.setattr("botocore.session.create_loader", described_once)
        patch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.005)
        patch.setattr(upload, "_log", SimpleNamespace(info=lambda *_, **__: None))
        yield


@dataclass
class S3Outcome:
    """What came of it."""

    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    uploads: int = 0
    upload_tries: int = 0
    keys_given_up: int = 0
    reads: int = 0
    read_errors: int = 0
    served_wrong: int = 0
    committed_wrong: int = 0
    problems: list[str] = field(default_factory=list)


class PlayedDriver(CallsByName):
    """The placement driver's part: an object is committed once, and at that moment the store must hold what it says."""

    def __init__(self, s3: LyingS3, outcome: S3Outcome) -> None:
        self._s3, self._outcome = s3, outcome
        self._prepared: dict[tuple[int, int], common_pb2.Object] = {}
        self._ids = 0
        self.committed: list[common_pb2.Object] = []

    async def prepare_object(self, request: pb.PrepareObjectRequest, timeout_s: float) -> pb.PrepareObjectResponse:
        """See PlacementDriver."""
        place = (request.start_offset, request.end_offset)
        found = self._prepared.get(place)
        if found is not None and found.object_id == request.spoiled_object_id:
            self._outcome.keys_given_up += 1
            found = None
        if found is None:
            self._ids += 1
            key = object_key(request.stream_id, request.range_index, *place, self._ids)
            found = self._prepared[place] = common_pb2.Object(
                object_id=self._ids, stream_id=request.stream_id, range_index=request.range_index,
                start_offset=place[0], end_offset=place[1], key=key)  # fmt: skip
        return pb.PrepareObjectResponse(object=found)

    async def commit_object(self, request: pb.CommitObjectRequest, timeout_s: float) -> pb.CommitObjectResponse:
        """See PlacementDriver."""
        (found,) = [each for each in self._prepared.values() if each.object_id == request.object_id]
        stored = self._s3.objects.get(f"t/{found.key}", b"")
        digest = f"sha256:{hashlib.sha256(stored).hexdigest()}"
        if len(stored) != request.size_bytes or digest != request.digest:
            self._outcome.committed_wrong += 1
            self._outcome.problems.append(f"object {found.key} was committed and is not what is stored")
        found.size_bytes, found.digest = request.size_bytes, request.digest
        found.footer_size_bytes, found.footer_crc = request.footer_size_bytes, request.footer_crc
        self.committed.append(found)
        return pb.CommitObjectResponse(object=found)


def sealed_store(stream_id: int, values: list[bytes]) -> Store:
    """A range server's store with one sealed range."""
    store = Store(Wal(Path("/log"), 3, io=LogDisk(), segment_bytes=1 << 18), cache_bytes=0)
    store.open()
    for number, value in enumerate(values):
        data = batch(number, [value], stream_id=stream_id)
        message: Any = SimpleNamespace(stream_id=stream_id, range_index=0, epoch=1, start_offset=0, confirm_offset=0,
                                       recovery=False, memory=False)  # fmt: skip
        store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    store.commit_end(stream_id, 0, 0, len(values), 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    return store


class S3Faults:
    """Uploads and reads with faults at that share of the requests; at last without, and then it must go through."""

    def __init__(self, directory: Path, seed: int, *, share: float, uploads: int, reads: int) -> None:
        self.outcome = S3Outcome()
        self._directory, self._seed, self._share = directory, seed, share
        self._uploads, self._reads = uploads, reads
        self._chance = Random(seed)

    async def run(self) -> S3Outcome:
        """All of it."""
        with LyingS3(self._seed) as s3:
            driver = PlayedDriver(s3, self.outcome)
            self._store = open_object_store(s3.url)
            for stream_id in range(1, self._uploads + 1):
                values = [self._chance.randbytes(self._chance.randrange(200)) for _ in range(RECORDS)]
                await self._upload(s3, driver, stream_id, values)
                await asyncio.to_thread(self._read_often, s3, driver.committed[-1], values)
            self.outcome.requests, self.outcome.faults = s3.requests, s3.faults
        return self.outcome

    async def _upload(self, s3: LyingS3, driver: PlayedDriver, stream_id: int, values: list[bytes]) -> None:
        parts = SMALL_PART_BYTES if stream_id % 2 else PART_BYTES
        work = Uploader(
            driver, DirectoryIdentity("rs1", 1, 1, 3), sealed_store(stream_id, values), self._directory, s3.url
        )  # type: ignore[arg-type]
        wanted = pb.UploadRange(epoch=1, start_offset=0, end_offset=len(values), stream_name="s")
        directive = pb.Directive(task_id="upload", stream_id=stream_id, range_index=0, upload_range=wanted)
        faults = s3.draw(self._share)
        count = len(driver.committed)
        for number in range(TRIES_MAX):
            s3.choose = faults if number < TRIES_WITH_FAULTS else lambda verb, key: ""
            self.outcome.upload_tries += 1
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(s3_store, "PART_BYTES", parts)
                    await work.upload_range(directive)
                break
            except RangelogError:
                continue
        await work.close()
        if len(driver.committed) != count + 1:
            self.outcome.problems.append(f"stream {stream_id}: {len(driver.committed) - count} objects were committed")
        self.outcome.uploads += 1
        driver._prepared.clear()

    def _read_often(self, s3: LyingS3, described: common_pb2.Object, values: list[bytes]) -> None:
        true = [(number, value) for number, value in enumerate(values)]
        s3.choose = s3.draw(self._share)
        for number in range(self._reads):
            if number == self._reads - 1:
                s3.choose = lambda verb, key: ""
            self.outcome.reads += 1
            try:
                found = [(each.offset, each.value) for each in self._read(described)]
            except RangelogError:
                self.outcome.read_errors += 1
                if number == self._reads - 1:
                    self.outcome.problems.append(f"object {described.key} cannot be read when all is well")
                continue
            if found != true:
                self.outcome.served_wrong += 1
                self.outcome.problems.append(f"object {described.key}: other records were served")

    def _read(self, described: common_pb2.Object) -> list[Record]:
        """Every other time as readers do it, fetched ahead on threads."""
        if self.outcome.reads % 2:
            return asyncio.run(self._read_ahead(described))
        tables = read_object(self._store, described, 0, described.end_offset)
        return [record for table in tables for record in records_from_arrow(table)]

    async def _read_ahead(self, described: common_pb2.Object) -> list[Record]:
        async def listed(position: int) -> list[common_pb2.Object]:
            return [described]

        fetcher = ObjectFetcher(self._store)
        fetcher.part_bytes = SMALL_PART_BYTES
        ahead = LookAhead(fetcher, listed, 0, described.end_offset)
        found: list[Record] = []
        try:
            while (table := await ahead.next()) is not None:
                found += records_from_arrow(table)
        finally:
            ahead.close()
            fetcher.close()
        return found
