"""Encrypted objects at the placement driver: which key an object has, who may write one, who may hear of one; snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rangelog_core import tier_snapshot
from rangelog_core.errors import EncryptionKeyMissing, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_core.limits import ENCRYPTION_KEY_ID_LENGTH_MAX
from rangelog_pd.handlers import objects
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.repacks import check_count
from rangelog_pd.state.server_indexes import ENCRYPTION_FORMAT
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.versions import LEVEL_ENCRYPTION
from rangelog_pd.tier_check import check_tier
from rangelog_pd.tier_snapshots import TierSnapshots
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_tier.encrypted_file import MAGIC, decrypt
from rangelog_tier.encryption_keys import KeyDirectory
from rangelog_tier.restore.known import snapshot_rows

DIGEST = "sha256:" + "ab" * 32
KNOWS = common_pb2.FormatVersions(format=ENCRYPTION_FORMAT, lowest=1, highest=1)


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    """A directory with one key."""
    made = KeyDirectory(str(tmp_path / "keys"))
    made.make_key("k1")
    return made


def learn(api: Any, *names: str) -> None:
    """These servers read encrypted objects."""
    for name in names:
        row = copy_of(api.machine.state.servers[name])
        row.server.formats.append(KNOWS)
        api.machine.state.servers.put(name, row)


async def sealed(api: Any) -> None:
    """The cluster version is that of the program, and the range is sealed."""
    api.machine.state.cluster_version = LEVEL_ENCRYPTION
    await api.seal(10)


async def prepare(api: Any, *, encrypted: bool) -> common_pb2.Object:
    """Ask for a key in the store, as the range server does that has the first replica."""
    replica = api.machine.state.ranges.of(1)[0].replicas[0]
    request = pb.PrepareObjectRequest(
        request_id="prepare", stream_id=1, range_index=0, start_offset=0, end_offset=10, server=replica.server,
        incarnation=replica.incarnation, encrypted=encrypted,
    )  # fmt: skip
    return (await objects.prepare_object(api.driver, request)).object


async def commit(api: Any, found: common_pb2.Object, key_id: str) -> common_pb2.Object:
    """Commit the object."""
    request = pb.CommitObjectRequest(
        request_id="commit", object_id=found.object_id, server=found.server, incarnation=found.incarnation, size_bytes=5,
        digest=DIGEST, epoch=1, encryption_key_id=key_id,
    )  # fmt: skip
    return (await objects.commit_object(api.driver, request)).object


async def test_the_key_of_an_object_is_kept_and_told(ready: Any) -> None:
    """To callers that know that objects may be encrypted; an earlier client is told to be upgraded, and not "damaged"."""
    await sealed(ready)
    learn(ready, "rs1", "rs2", "rs3", "rs4")
    assert (await commit(ready, await prepare(ready, encrypted=True), "k1")).encryption_key_id == "k1"
    asked = pb.ListObjectsRequest(name="s", knows_encryption=True)
    (listed,) = (await objects.list_objects(ready.driver, asked)).objects
    assert listed.encryption_key_id == "k1"
    assert ready.machine.state.range_objects.encrypted_count == 1
    with pytest.raises(UnsupportedVersion, match="objects of stream 's' are encrypted, and this client"):
        await objects.list_objects(ready.driver, pb.ListObjectsRequest(name="s"))
    beyond = pb.ListObjectsRequest(name="s", from_offset=10)
    assert not (await objects.list_objects(ready.driver, beyond)).objects, "whoever meets none is not refused"


async def test_objects_in_clear_are_told_to_everybody(ready: Any) -> None:
    """A cluster without keys is as before, for earlier clients too."""
    await sealed(ready)
    await commit(ready, await prepare(ready, encrypted=False), "")
    (listed,) = (await objects.list_objects(ready.driver, pb.ListObjectsRequest(name="s"))).objects
    assert not listed.encryption_key_id and not ready.machine.state.range_objects.encrypted_count


async def test_no_encrypted_object_while_a_server_cannot_read_it(ready: Any) -> None:
    """It would take it for a damaged one when it repacks."""
    await sealed(ready)
    learn(ready, "rs1", "rs2", "rs4")
    with pytest.raises(PreconditionFailed, match="rs3 is of a version that does not read encrypted objects"):
        await prepare(ready, encrypted=True)
    learn(ready, "rs3")
    assert (await prepare(ready, encrypted=True)).object_id


async def test_no_object_in_clear_where_there_are_keys(ready: Any, keys: KeyDirectory) -> None:
    """A range server or job without keys is refused before it stores anything."""
    await sealed(ready)
    ready.driver.encryption_keys = keys
    with pytest.raises(
        EncryptionKeyMissing, match=r"this cluster encrypts its objects, and rs. would write one in clear"
    ):
        await prepare(ready, encrypted=False)
    repack = pb.PrepareRepackRequest(request_id="r", stream_id=1, object_ids=[1, 2], packer="a job")
    with pytest.raises(EncryptionKeyMissing, match="a job would write one in clear"):
        await objects.prepare_repack(ready.driver, repack)
    assert not ready.machine.state.objects


async def test_the_id_of_a_key_is_bounded(ready: Any) -> None:
    """It is kept with each object."""
    await sealed(ready)
    learn(ready, "rs1", "rs2", "rs3", "rs4")
    found = await prepare(ready, encrypted=True)
    with pytest.raises(InvalidArgument, match="the id of an encryption key"):
        await commit(ready, found, "k" * (ENCRYPTION_KEY_ID_LENGTH_MAX + 1))


def test_commands_of_encryption_need_its_level() -> None:
    """And the others need what they needed before."""
    prepared = pb.PrepareObjectRequest(encrypted=True)
    repacked = pb.PrepareRepackRequest(encrypted=True)
    for command in (
        pd_state_pb2.Command(prepare_object=pd_state_pb2.TimedPrepareObject(request=prepared)),
        pd_state_pb2.Command(prepare_repack=pd_state_pb2.TimedPrepareRepack(request=repacked)),
        pd_state_pb2.Command(commit_object=pb.CommitObjectRequest(encryption_key_id="k")),
        pd_state_pb2.Command(commit_repack=pb.CommitRepackRequest(encryption_key_id="k")),
    ):
        assert needed_level(command) == LEVEL_ENCRYPTION == 10
    assert needed_level(pd_state_pb2.Command(commit_object=pb.CommitObjectRequest())) == 1


def test_one_object_may_get_another_key() -> None:
    """Otherwise a repack joins at least two."""
    check_count(pb.PrepareRepackRequest(object_ids=[1], encrypted=True))
    with pytest.raises(InvalidArgument):
        check_count(pb.PrepareRepackRequest(object_ids=[1]))


class Snapshots:
    """A leader on a directory as tier."""

    def __init__(self, api: Any, tier: Path, keys: KeyDirectory | None) -> None:
        self.api, self.tier = api, tier
        api.driver.encryption_keys = keys
        self.work = TierSnapshots(api.driver)

    async def look(self) -> str:
        """Some time later; return what hinders a snapshot."""
        self.api.driver.clock_ms += 60_000
        await self.work._look()
        return str(self.api.driver.tier_snapshots.last_error)

    def stored(self) -> list[bytes]:
        """The snapshots in the tier."""
        return [each.read_bytes() for each in sorted(self.tier.rglob("*")) if each.is_file()]


async def test_snapshots_are_encrypted(make_api: Callable[..., Any], tmp_path: Path, keys: KeyDirectory) -> None:
    """They name all streams; with the keys they are what they were, and no copy in clear stays beside them."""
    api = make_api(tier_url=f"file://{tmp_path / 'tier'}")
    found = Snapshots(api, tmp_path / "tier", keys)
    await api.driver.reconcile()
    await api.create("flights")
    assert await found.look() == ""
    (data,) = found.stored()
    assert data.startswith(MAGIC) and b"k1" in data[:100]
    with pytest.raises(EncryptionKeyMissing):
        decrypt(data, None, source="x")
    _, state = tier_snapshot.read(decrypt(data, keys, source="x"), source="x")
    assert [each.name for each in snapshot_rows(state).streams.values()] == ["flights"]
    assert not list(api.driver.settings.data_dir.glob("tier-snapshot*"))
    found.work.close()


async def test_snapshots_wait_for_the_upgrade_and_for_keys(
    make_api: Callable[..., Any], tmp_path: Path, keys: KeyDirectory
) -> None:
    """With keys below the level; without keys once an object is encrypted: nothing is written in clear, and it is said."""
    api = make_api(tier_url=f"file://{tmp_path / 'tier'}")
    found = Snapshots(api, tmp_path / "tier", keys)
    await api.driver.reconcile()
    await api.create("flights")
    state = api.machine.state
    state.cluster_version = LEVEL_ENCRYPTION - 1
    assert "snapshots are encrypted from cluster version 10 on" in await found.look()
    state.cluster_version, api.driver.encryption_keys = LEVEL_ENCRYPTION, None
    state.range_objects.encrypted_count = 1
    assert "and this placement driver has no keys" in await found.look()
    assert found.stored() == []
    state.range_objects.encrypted_count = 0
    assert await found.look() == "" and not found.stored()[0].startswith(MAGIC)
    found.work.close()


def test_a_missing_key_is_an_error_of_the_tier(tmp_path: Path) -> None:
    """Shown by `pdctl cluster status`, before the first snapshot fails."""
    with pytest.raises(EncryptionKeyMissing, match="directory of keys cannot be read"):
        asyncio.run(asyncio.to_thread(check_tier, f"file://{tmp_path}", KeyDirectory(str(tmp_path / "none"))))
