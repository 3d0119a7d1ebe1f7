"""A range server uploads to the store that its tier has now, and not to one that was the right one."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import AccessDenied, Unavailable
from rangelog_core.object_keys import object_key
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.tier import upload as uploading
from rangelog_server.tier.upload import Uploader
from rangelog_tier.file_store import FileStore
from tests.corruption.s3_faults import sealed_store
from tests.support.pd_calls import CallsByName
from tests.support.waiting import until

RECORDS = 5
UPLOAD = pb.Directive(
    task_id="upload",
    stream_id=1,
    upload_range=pb.UploadRange(epoch=1, end_offset=RECORDS, stream_name="s"),
)


class Driver(CallsByName):
    """The placement driver's part: hands out one object."""

    def __init__(self) -> None:
        self.object_id, self.tier_id = 7, 0
        self.calls: Counter[str] = Counter()

    async def prepare_object(self, request: pb.PrepareObjectRequest, timeout_s: float) -> pb.PrepareObjectResponse:
        """See PlacementDriver."""
        self.calls["prepare"] += 1
        key = object_key(1, 0, 0, RECORDS, self.object_id)
        found = common_pb2.Object(
            object_id=self.object_id, stream_id=1, end_offset=RECORDS, key=key, tier_id=self.tier_id
        )
        return pb.PrepareObjectResponse(object=found)

    async def commit_object(self, request: pb.CommitObjectRequest, timeout_s: float) -> pb.CommitObjectResponse:
        """See PlacementDriver."""
        self.calls["commit"] += 1
        return pb.CommitObjectResponse()


class Server:
    """An uploader over one sealed range, and two directories."""

    def __init__(self, directory: Path, own_url: str = "") -> None:
        self.directory = directory
        self.driver = Driver()
        store = sealed_store(1, [b"%d" % number for number in range(RECORDS)])
        identity = DirectoryIdentity("rs1", 1, 1, 3)
        self.uploader = Uploader(self.driver, identity, store, directory, own_url)  # type: ignore[arg-type]

    def url(self, name: str) -> str:
        return f"file://{self.directory}/{name}"

    def stored(self) -> list[str]:
        """In which directories the object is."""
        key = object_key(1, 0, 0, RECORDS, self.driver.object_id)
        return sorted(each.name for each in self.directory.iterdir() if (each / key).is_file())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """See Server."""
    made = Server(tmp_path)
    yield made
    await made.uploader.close()


async def test_an_upload_waits_until_the_server_has_heard_of_the_store(server: Server) -> None:
    """An object of a store that is not known here yet is stored nowhere, and goes there once it is."""
    server.uploader.learned_url(server.url("a"))
    server.driver.object_id, server.driver.tier_id = 7, 5
    with pytest.raises(Unavailable, match="the tier was changed"):
        await server.uploader.upload_range(UPLOAD)
    assert server.stored() == [] and not server.driver.calls["commit"]
    server.uploader.learned_url(f"{server.url('a')} 5={server.url('b')}")
    await server.uploader.upload_range(UPLOAD)
    assert server.stored() == ["b"] and server.driver.calls["commit"] == 1


async def test_an_object_of_before_goes_where_it_was_promised(server: Server) -> None:
    """An upload that was prepared before the change ends in the former store, where readers look for it."""
    server.uploader.learned_url(f"{server.url('a')} 9={server.url('b')}")
    (server.directory / "a").mkdir()
    await server.uploader.upload_range(UPLOAD)
    assert server.stored() == ["a"]


async def test_objects_are_deleted_where_they_are(server: Server) -> None:
    """The key tells the store; a manifest is no object."""
    server.uploader.learned_url(server.url("a"))
    await server.uploader.upload_range(UPLOAD)
    server.uploader.learned_url(f"{server.url('a')} 9={server.url('b')}")
    key = object_key(1, 0, 0, RECORDS, 7)
    await server.uploader.delete_objects(pb.Directive(delete_objects=pb.DeleteObjects(keys=[key])))
    assert server.stored() == []


async def test_credentials_that_may_not_delete_keep_nothing_else_from_work(server: Server, monkeypatch: Any) -> None:
    """A bucket's policy may deny Delete to all but the collector: the deletion fails by name, uploads go on."""

    def denied(self: FileStore, key: str) -> None:
        raise AccessDenied("s3://b denies access: s3:DeleteObject is needed")

    monkeypatch.setattr(FileStore, "delete", denied)
    server.uploader.learned_url(server.url("a"))
    await server.uploader.upload_range(UPLOAD)
    key = object_key(1, 0, 0, RECORDS, 7)
    with pytest.raises(AccessDenied, match="s3:DeleteObject"):
        await server.uploader.delete_objects(pb.Directive(delete_objects=pb.DeleteObjects(keys=[key])))
    assert server.stored() == ["a"]
    await server.uploader.upload_range(UPLOAD)
    assert server.stored() == ["a"]


async def test_a_url_of_its_own_counts_until_the_tier_is_changed(tmp_path: Path) -> None:
    """It stands for the first store under another name; for a later one it would be wrong."""
    server = Server(tmp_path, f"file://{tmp_path}/own")
    server.uploader.learned_url(server.url("a"))
    await server.uploader.upload_range(UPLOAD)
    assert server.stored() == ["own"]
    server.uploader.learned_url(f"{server.url('a')} 9={server.url('b')}")
    server.driver.object_id = server.driver.tier_id = 9
    await server.uploader.upload_range(UPLOAD)
    assert server.stored() == ["b"]
    await server.uploader.close()


async def test_the_tier_is_checked_when_it_is_learned_and_after_failures(server: Server, monkeypatch: Any) -> None:
    """The error is there for the next heartbeat, and goes; hearing the same URL again costs nothing."""
    (server.directory / "a").write_bytes(b"in the way")
    server.uploader.learned_url(server.url("a"))
    async with asyncio.timeout(20):
        await until(lambda: server.uploader.watch.error)
        assert server.uploader.watch.error.startswith("UNAVAILABLE: ")
        with pytest.raises(Unavailable):
            await server.uploader.upload_range(UPLOAD)
        (server.directory / "a").unlink()
        await until(lambda: not server.uploader.watch.error)
    opened = server.uploader._objects
    server.uploader.learned_url(server.url("a"))
    assert server.uploader._objects is opened is not None


async def test_a_store_that_was_being_opened_as_the_tier_changed_does_not_count(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening takes its time: what was opened by the former URL would get the objects that belong into the new store."""
    asked, goes_on = threading.Event(), threading.Event()
    opens = uploading._open

    def slow(url: str, keys: Any) -> Any:
        asked.set()
        assert goes_on.wait(30)
        return opens(url, keys)

    server.uploader.learned_url(server.url("a"))
    monkeypatch.setattr(uploading, "_open", slow)
    task = asyncio.create_task(server.uploader.upload_range(UPLOAD))
    await until(asked.is_set)
    server.driver.object_id, server.driver.tier_id = 7, 5
    server.uploader.learned_url(f"{server.url('a')} 5={server.url('b')}")
    goes_on.set()
    await task
    assert server.stored() == ["b"] and server.driver.calls["commit"] == 1
