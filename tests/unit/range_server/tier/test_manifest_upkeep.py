"""The manifests that a range server writes: after commits, before deletions, beside other servers that do the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import OutcomeUnknown, StreamNotFound, TopicNotFound, Unavailable
from rangelog_core.ids import shard_stream_name
from rangelog_core.manifest import ManifestShard, StreamManifest, parse_manifest
from rangelog_core.object_keys import manifest_key, object_key
from rangelog_proto.v1 import common_pb2, pd_pb2, topic_pb2
from rangelog_server.tier import manifests
from rangelog_server.tier.manifests import ManifestUpkeep
from rangelog_tier.file_store import FileStore
from tests.support.pd_calls import CallsByName
from tests.support.waiting import until

STREAM = 7


class PlayedDriver(CallsByName):
    """The placement driver's part: one stream, whose objects and trim offset the test changes."""

    def __init__(self, name: str = "flights") -> None:
        self.stream = common_pb2.Stream(stream_id=STREAM, name=name)
        self.objects: list[common_pb2.Object] = []
        self.gone = False
        self.before_listing: Callable[[], Awaitable[None]] | None = None
        self.stale: list[common_pb2.Object] | None = (
            None  # what the listing in progress shows, whatever is committed since
        )
        self.error: Exception | None = None
        self.asked = 0

    def commit(self, count: int = 10) -> None:
        """The next object is committed."""
        start = self.objects[-1].end_offset if self.objects else 0
        key = object_key(STREAM, 0, start, start + count, len(self.objects) + 1)
        self.objects.append(common_pb2.Object(key=key, start_offset=start, end_offset=start + count, size_bytes=5))

    async def list_ranges(self, request: pd_pb2.ListRangesRequest, timeout_s: float) -> pd_pb2.ListRangesResponse:
        """See PdClient."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        if self.gone:
            raise StreamNotFound("no stream 7")
        return pd_pb2.ListRangesResponse(stream=self.stream)

    async def list_objects(self, request: pd_pb2.ListObjectsRequest, timeout_s: float) -> pd_pb2.ListObjectsResponse:
        """See PdClient. Two objects are a page."""
        if self.before_listing is not None:
            interrupt, self.before_listing = self.before_listing, None
            await interrupt()
        objects = self.objects if self.stale is None else self.stale
        found = [each for each in objects if each.end_offset > request.from_offset]
        if len(found) <= 2:
            self.stale = None
        return pd_pb2.ListObjectsResponse(objects=found[:2], more=len(found) > 2)

    async def describe_topic(self, request: Any, timeout_s: float) -> Any:
        """See PdClient."""
        if self.gone:
            raise TopicNotFound("no topic 4")
        topic = topic_pb2.Topic(topic_id=request.topic.topic_id, namespace="shop", name="orders")
        return topic_pb2.DescribeTopicResponse(topic=topic)


class Upkeep:
    """One server's manifests, over a store and a placement driver that others use as well."""

    def __init__(self, driver: PlayedDriver, store: Any, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

        async def opened() -> Any:
            return store

        self.work = ManifestUpkeep(driver, opened, directory)  # type: ignore[arg-type]

    def left(self) -> list[str]:
        """The streams whose manifests are not written."""
        return [each.name for each in self.directory.iterdir()]

    async def idle(self) -> None:
        """Until what was committed is written."""
        await until(lambda: not (self.work._due or self.left()), within_s=10)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is waited for."""
    monkeypatch.setattr(manifests, "DELAY_S", 0.0)
    yield


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A directory."""
    return FileStore(tmp_path / "store")


def stored(store: FileStore) -> StreamManifest | None:
    """The manifest in the store."""
    (info,) = list(store.list("manifests/")) or [None]
    return parse_manifest(store.get(info.key), info.key) if info is not None else None


def commit(upkeep: Upkeep, driver: PlayedDriver) -> None:
    """A commit, as the uploader makes it."""
    with upkeep.work.committing(STREAM):
        driver.commit()


async def test_each_commit_is_in_the_manifest(store: FileStore, tmp_path: Path) -> None:
    """The manifest has the name of the stream and all objects; nothing is left to do."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    for count in range(1, 6):
        commit(upkeep, driver)
        assert upkeep.left() == ["7"]
        await upkeep.idle()
        found = stored(store)
        assert found is not None and (found.stream, found.stream_id, found.shard) == ("flights", STREAM, None)
        assert [each.key for each in found.objects] == [each.key for each in driver.objects]
        assert found.revision == 10 * count
    assert [info.key for info in store.list("manifests/")] == [manifest_key(STREAM, "flights")]
    await upkeep.work.close()


async def test_a_repack_between_two_pages(store: FileStore, tmp_path: Path) -> None:
    """No manifest names the object and those that it replaced; the one that is written is of the time after it."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    for _ in range(5):
        driver.commit()
    listed = driver.list_objects
    pages = 0

    async def repacked_behind_the_first_page(request: Any, timeout_s: float) -> pd_pb2.ListObjectsResponse:
        nonlocal pages
        page = await listed(request, timeout_s)
        pages += 1
        if pages == 1:
            joined = common_pb2.Object(
                key=object_key(STREAM, 4, 0, 50, 9), start_offset=0, end_offset=50, size_bytes=25
            )
            driver.objects = [joined]
            driver.stream.repack_count += 1
        return page

    driver.list_objects = repacked_behind_the_first_page  # type: ignore[method-assign]
    upkeep.work.noted(STREAM)
    await upkeep.idle()
    found = stored(store)
    assert found is not None and [(each.start_offset, each.end_offset) for each in found.objects] == [(0, 50)]
    assert found.repack_count == 1
    driver.objects = [common_pb2.Object(key="streams/7/other", start_offset=0, end_offset=50, size_bytes=24)]
    driver.stream.repack_count += 1
    upkeep.work.noted(STREAM)
    await upkeep.idle()
    found = stored(store)
    assert found is not None and [each.key for each in found.objects] == ["streams/7/other"], "a later revision"
    await upkeep.work.close()


async def test_the_stream_of_a_shard(store: FileStore, tmp_path: Path) -> None:
    """Its manifest has the topic's name, and so has its key."""
    driver = PlayedDriver(shard_stream_name(4, 2))
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    commit(upkeep, driver)
    await upkeep.idle()
    found = stored(store)
    assert found is not None and found.shard == ManifestShard("shop/orders", 4, 2)
    assert [info.key for info in store.list("manifests/")] == ["manifests/7/shop/orders/2.json"]
    await upkeep.work.close()


async def test_a_killed_server_writes_what_it_left(store: FileStore, tmp_path: Path) -> None:
    """A commit whose reply never came, and a process that ended: the next one writes the manifest."""
    driver = PlayedDriver()
    killed = Upkeep(driver, store, tmp_path / "m")
    with pytest.raises(OutcomeUnknown), killed.work.committing(STREAM):
        driver.commit()
        raise OutcomeUnknown("no answer")
    assert stored(store) is None and killed.left() == ["7"]
    (tmp_path / "m" / "not-a-stream").touch()
    following = Upkeep(driver, store, tmp_path / "m")
    following.work.start()
    (tmp_path / "m" / "not-a-stream").unlink()
    await following.idle()
    found = stored(store)
    assert found is not None and found.revision == 10
    await killed.work.close()
    await following.work.close()


async def test_trims_and_deletions(store: FileStore, tmp_path: Path) -> None:
    """Before objects go their names go; without live objects there is no manifest; a deletion never fails for it."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    for _ in range(3):
        commit(upkeep, driver)
    await upkeep.idle()
    driver.stream.trim_offset = 12
    await upkeep.work.write_before_deletion([driver.objects[0].key, "probe/x"])
    found = stored(store)
    assert found is not None and found.trim_offset == 12
    assert [each.start_offset for each in found.objects] == [10, 20]
    driver.error = Unavailable("nobody leads")
    await upkeep.work.write_before_deletion([driver.objects[1].key])
    driver.error, driver.stream.trim_offset = None, 30
    await until(lambda: stored(store) is None, within_s=10)
    commit(upkeep, driver)
    await upkeep.idle()
    assert stored(store) is not None
    driver.gone = True
    await upkeep.work.write_before_deletion([driver.objects[3].key])
    assert stored(store) is None
    await upkeep.work.close()


async def test_a_late_manifest_does_not_replace_a_later_one(store: FileStore, tmp_path: Path) -> None:
    """A server asks the placement driver, is overtaken by another one, and then begins anew: also for the first manifest."""
    driver = PlayedDriver()
    slow, fast = (Upkeep(driver, store, tmp_path / name) for name in ("slow", "fast"))
    for count in (1, 2, 3):
        driver.commit()
        before = driver.objects[:]

        async def overtaken(before: list[common_pb2.Object] = before) -> None:
            driver.commit()
            assert await fast.work._write(STREAM) == len(before) + 1
            driver.stale = before

        driver.before_listing = overtaken
        assert await slow.work._write(STREAM) == 2 * count
        found = stored(store)
        assert found is not None and len(found.objects) == 2 * count
    await slow.work.close()
    await fast.work.close()


async def test_a_deletion_does_not_take_a_later_manifest_along(store: FileStore, tmp_path: Path) -> None:
    """Between the look at the placement driver and the deletion another server commits: its manifest is there in the end."""
    driver = PlayedDriver()
    fast = Upkeep(driver, store, tmp_path / "fast")
    driver.commit()
    await fast.work._write(STREAM)
    driver.stream.trim_offset = 10
    loop = asyncio.get_running_loop()

    class Interrupted(FileStore):
        """Another server commits and writes the manifest before the first deletion."""

        def delete(self, key: str) -> None:
            if len(driver.objects) == 1:
                driver.commit()
                assert asyncio.run_coroutine_threadsafe(fast.work._write(STREAM), loop).result(10) == 1
            super().delete(key)

    slow = Upkeep(driver, Interrupted(tmp_path / "store"), tmp_path / "slow")
    await slow.work.write_before_deletion([driver.objects[0].key])
    found = stored(store)
    assert found is not None and [each.key for each in found.objects] == [driver.objects[1].key]
    await slow.work.close()
    await fast.work.close()


async def test_a_commit_in_progress_stays_noted(store: FileStore, tmp_path: Path) -> None:
    """A manifest that is written during a commit need not have it: the stream's file stays until one has."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    with upkeep.work.committing(STREAM):
        driver.commit()
        upkeep.work.changed(STREAM)
        await until(lambda: STREAM in upkeep.work._rests, within_s=10)
        assert stored(store) is not None and upkeep.left() == ["7"]
    await upkeep.idle()
    await upkeep.work.close()


@pytest.mark.parametrize("seed", range(8))
async def test_many_servers_at_once(store: FileStore, tmp_path: Path, seed: int) -> None:
    """In any order of commits, trims and failures the manifest never goes back, and has everything in the end."""
    chance = random.Random(seed)
    driver = PlayedDriver()
    servers = [Upkeep(driver, store, tmp_path / f"m{number}") for number in range(3)]
    revisions: list[int] = []

    def look() -> None:
        found = stored(store)
        if found is not None:
            revisions.append(found.revision)
            live = {each.key for each in driver.objects}
            assert {each.key for each in found.objects} <= live, "never one that was not committed"

    for server in servers:
        server.work.start()
    for _ in range(30):
        commit(chance.choice(servers), driver)
        if chance.random() < 0.2:
            driver.stream.trim_offset = chance.randrange(driver.stream.trim_offset, driver.objects[-1].end_offset)
            await chance.choice(servers).work.write_before_deletion([driver.objects[0].key])
        driver.error = Unavailable("503") if chance.random() < 0.2 else None
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        look()
    driver.error = None
    for server in servers:
        await server.idle()
    look()
    found = stored(store)
    assert found is not None and found.trim_offset <= driver.stream.trim_offset
    assert revisions == sorted(revisions)
    assert found.objects[-1].end_offset == driver.objects[-1].end_offset
    for server in servers:
        await server.work.close()


async def test_damaged_and_newer_manifests(store: FileStore, tmp_path: Path) -> None:
    """What is damaged is replaced; what a later program wrote stays."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    store.put_if_absent(manifest_key(STREAM, "flights"), b"{")
    upkeep.work.start()
    commit(upkeep, driver)
    await upkeep.idle()
    assert stored(store) is not None
    newer = b'{"rangelog.manifest_version": 3}'
    store.delete(manifest_key(STREAM, "flights"))
    store.put_if_absent(manifest_key(STREAM, "flights"), newer)
    commit(upkeep, driver)
    await until(lambda: not upkeep.work._due, within_s=10)
    await upkeep.work.write_before_deletion([driver.objects[0].key])
    assert store.get(manifest_key(STREAM, "flights")) == newer and upkeep.left() == ["7"]
    await upkeep.work.close()


async def test_a_large_manifest_is_written_less_often(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream rests after its manifest, the longer the more objects are in it; a commit meanwhile waits until then."""
    monkeypatch.setattr(manifests, "DELAY_PER_OBJECT_S", 600.0)
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    commit(upkeep, driver)
    await upkeep.idle()
    asked = driver.asked
    commit(upkeep, driver)
    assert upkeep.work._due[STREAM] > asyncio.get_running_loop().time() + 500
    assert driver.asked == asked and upkeep.left() == ["7"]
    await upkeep.work.close()


async def test_a_stream_with_encrypted_objects_has_no_manifest(store: FileStore, tmp_path: Path) -> None:
    """It would tell name and times in clear: the one from before is removed."""
    driver = PlayedDriver()
    upkeep = Upkeep(driver, store, tmp_path / "m")
    upkeep.work.start()
    commit(upkeep, driver)
    await upkeep.idle()
    assert stored(store) is not None
    with upkeep.work.committing(STREAM):
        driver.commit()
        driver.objects[-1].encryption_key_id = "k1"
    await upkeep.idle()
    assert stored(store) is None
    await upkeep.work.close()
