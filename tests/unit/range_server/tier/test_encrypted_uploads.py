"""A range server with keys stores nothing in clear: it waits for key and cluster version; one without is as before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rangelog_core.errors import EncryptionKeyMissing, Unavailable
from rangelog_core.versions import LEVEL_ENCRYPTION
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.tier.upload import Uploader
from rangelog_tier.encryption_keys import KeyDirectory
from tests.corruption.s3_faults import sealed_store
from tests.unit.range_server.tier.test_upload_to_stores import UPLOAD, Driver

VALUES = [b"value-nobody-reads %d" % number for number in range(5)]


class NotingDriver(Driver):
    """Answers at a cluster version, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster_version = LEVEL_ENCRYPTION
        self.prepared: list[bool] = []
        self.spoiled: list[int] = []
        self.committed: list[str] = []

    async def describe_cluster(
        self, request: pb.DescribeClusterRequest, timeout_s: float
    ) -> pb.DescribeClusterResponse:
        """See PlacementDriver."""
        self.calls["describe"] += 1
        return pb.DescribeClusterResponse(cluster_version=self.cluster_version)

    async def prepare_object(self, request: pb.PrepareObjectRequest, timeout_s: float) -> pb.PrepareObjectResponse:
        """See PlacementDriver."""
        self.prepared.append(request.encrypted)
        self.spoiled.append(request.spoiled_object_id)
        return await super().prepare_object(request, timeout_s)

    async def commit_object(self, request: pb.CommitObjectRequest, timeout_s: float) -> pb.CommitObjectResponse:
        """See PlacementDriver."""
        self.committed.append(request.encryption_key_id)
        return await super().commit_object(request, timeout_s)


class Server:
    """An uploader over one sealed range, with a directory of keys, or none."""

    def __init__(self, directory: Path, keys: KeyDirectory | None) -> None:
        self.tier = directory / "tier"
        self.driver = NotingDriver()
        identity = DirectoryIdentity("rs1", 1, 1, 3)
        self.uploader = Uploader(
            self.driver, identity, sealed_store(1, VALUES), directory, f"file://{self.tier}", keys=keys
        )  # type: ignore[arg-type]

    def stored(self) -> list[bytes]:
        """What is in the tier, but for the probe's."""
        files = [each for each in self.tier.rglob("*") if each.is_file() and "probe" not in each.parts]
        return [each.read_bytes() for each in files]


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    """A directory of keys that has none yet."""
    (tmp_path / "keys").mkdir()
    return KeyDirectory(str(tmp_path / "keys"))


@pytest.fixture
async def server(tmp_path: Path, keys: KeyDirectory) -> AsyncIterator[Server]:
    """A server with keys."""
    made = Server(tmp_path, keys)
    yield made
    await made.uploader.close()


async def test_an_upload_waits_for_its_key(server: Server, keys: KeyDirectory) -> None:
    """The error names what is missing, nothing is prepared, so that another server may do it; then it is encrypted."""
    with pytest.raises(EncryptionKeyMissing, match="no encryption key is in"):
        await server.uploader.upload_range(UPLOAD)
    assert not server.driver.calls and server.stored() == []
    keys.make_key("k1")
    await server.uploader.upload_range(UPLOAD)
    assert server.driver.prepared == [True] and server.driver.committed == ["k1"]
    (data,) = server.stored()
    assert data.startswith(b"PARE") and b"nobody-reads" not in data
    (Path(keys.path) / "k1.key").unlink()  # while it runs
    with pytest.raises(EncryptionKeyMissing):
        await server.uploader.upload_range(UPLOAD)
    assert server.driver.prepared == [True]


async def test_an_upload_waits_for_the_cluster_version(server: Server, keys: KeyDirectory) -> None:
    """Earlier placement drivers would forget the key's id: nothing is prepared and nothing stored, in clear neither."""
    keys.make_key("k1")
    server.driver.cluster_version = LEVEL_ENCRYPTION - 1
    with pytest.raises(Unavailable, match="objects are encrypted from cluster version 10 on"):
        await server.uploader.upload_range(UPLOAD)
    assert not server.driver.prepared and server.stored() == []
    server.driver.cluster_version = LEVEL_ENCRYPTION
    await server.uploader.upload_range(UPLOAD)
    server.driver.object_id += 1
    await server.uploader.upload_range(UPLOAD)
    assert server.driver.calls["describe"] == 2, "a cluster version never falls"


async def test_a_second_try_is_no_damage(server: Server, keys: KeyDirectory) -> None:
    """A server that ended between storing and committing: its next try makes other bytes, and goes under another name."""
    keys.make_key("k1")
    await server.uploader.upload_range(UPLOAD)
    with pytest.raises(Unavailable, match="stored by an earlier try"):
        await server.uploader.upload_range(UPLOAD)
    assert server.driver.calls["commit"] == 1
    server.driver.object_id += 1
    await server.uploader.upload_range(UPLOAD)
    assert server.driver.spoiled == [0, 0, 7] and server.driver.calls["commit"] == 2


async def test_a_server_without_keys_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for nothing more, and says nothing of keys."""
    monkeypatch.delenv("RANGELOG_ENCRYPTION_KEYS_DIR", raising=False)
    server = Server(tmp_path, None)
    server.driver.cluster_version = 1
    await server.uploader.upload_range(UPLOAD)
    assert server.driver.prepared == [False] and server.driver.committed == [""] and not server.driver.calls["describe"]
    assert server.stored()[0].startswith(b"PAR1")
    await server.uploader.close()


async def test_the_check_of_the_tier_finds_a_missing_key(server: Server, keys: KeyDirectory) -> None:
    """So the cluster's status says which server has none, before anything is to be uploaded."""
    with pytest.raises(EncryptionKeyMissing):
        await server.uploader._check_tier()
    keys.make_key("k1")
    await server.uploader._check_tier()
