"""Real processes with keys: the bucket holds nothing in clear; readers need the keys; rotation; a restore from the bucket."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

import rangelog
from rangelog import Client, EncryptionKeyMissing, KeyDirectory, StreamConfig
from rangelog_cli.local.processes import Cluster
from rangelog_demo.s3_server import BUCKET, CREDENTIALS, REGION, S3Server
from rangelog_tier.encryption_keys import KEYS_DIR_ENV
from rangelog_tier.object_store import PROBE_PREFIX
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]  # Spark starts twice

STREAM = "payroll-nobody-reads"
SECRETS = (b"value-nobody-reads", b"key-nobody-reads", b"header-nobody-reads", STREAM.encode())
PER_PART = 300
CONFIG = StreamConfig(hot_retention_seconds=0)
SETTINGS = CREDENTIALS | {
    "RANGELOG_PD_TIER_SNAPSHOT_SOON_MS": "200",
    "RANGELOG_PD_TIER_SNAPSHOT_INTERVAL_MS": "1000",
    "RANGELOG_PD_TIER_SNAPSHOT_COUNT": "2",
    "RANGELOG_PD_DELETE_GRACE_MS": "500",
    "RANGELOG_PD_REPACK_TARGET_BYTES": "0",  # the test counts objects
}


class Bucket:
    """The S3 server's bucket, as somebody sees it who is given no key."""

    def __init__(self, server: S3Server) -> None:
        self.client = boto3.client("s3", endpoint_url=server.endpoint, region_name=REGION)

    def contents(self) -> dict[str, bytes]:
        """Every object, but those that go meanwhile: servers probe the tier and write snapshots again and again."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        found = {}
        for key in [each["Key"] for page in pages for each in page.get("Contents", [])]:
            if PROBE_PREFIX not in key:
                with suppress(self.client.exceptions.NoSuchKey):
                    found[key] = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return found

    def in_clear(self) -> list[str]:
        """The keys of what has a secret, in its key or its bytes; a snapshot in clear is compressed, and told by its begin."""
        return [
            key
            for key, data in self.contents().items()
            if any(each in data or each in key.encode() for each in SECRETS) or data.startswith(b"RLTSNAP")
        ]


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server, and its credentials in the environment."""
    server = S3Server(tmp_path)
    server.start()
    for name, value in (CREDENTIALS | {"AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(KEYS_DIR_ENV, raising=False)
    yield server
    server.process.kill()


def pdctl_of(cluster: Cluster, keys: Path | None) -> Pdctl:
    """`pdctl` with these keys in its environment."""
    made = Pdctl(cluster)
    made.environment |= {KEYS_DIR_ENV: str(keys)} if keys is not None else {}
    return made


async def append_part(client: Client, number: int) -> None:
    """Append records whose every part can be looked for, and seal their range."""
    async with client.writer(STREAM) as writer:
        for each in range(number * PER_PART, (number + 1) * PER_PART):
            writer.append_nowait(SECRETS[0] + b" %d" % each, key=SECRETS[1], headers={"h": SECRETS[2]})
        await writer.flush()
    await client.seal_stream(STREAM)


async def cold_offsets(cluster: Cluster, keys: Path | None) -> list[int]:
    """The numbers in all records, read from the tier alone."""
    held = KeyDirectory(str(keys)) if keys is not None else None
    async with await rangelog.connect(cluster.connect_string, encryption_keys=held) as client:
        reader = client.reader(STREAM, read_preference="cold_only")
        return [int(each.value.removeprefix(SECRETS[0])) async for each in reader]


def tiered(pdctl: Pdctl, parts: int) -> list[dict[str, Any]]:
    """The objects, once they have as many parts of the stream; else nothing."""
    return pdctl.objects_of(STREAM, 0, parts * PER_PART)


def status(pdctl: Pdctl) -> dict[str, Any]:
    """The state of the cluster, whatever it is."""
    found: dict[str, Any] = json.loads(pdctl("cluster", "status", "-o", "json").stdout)
    return found


def spark_job(cluster: Cluster, keys: Path, *arguments: str) -> str:
    """Run `rangelog-spark` to its end; return what it printed."""
    environment = pdctl_of(cluster, keys).environment
    command = [sys.executable, "-m", "rangelog.spark.command_line", *arguments, "--pd", cluster.connect_string]
    run = subprocess.run(command, capture_output=True, env=environment, timeout=200, check=False)
    assert run.returncode == 0, run.stderr.decode()[-2000:]
    return run.stdout.decode()


def test_a_cluster_with_keys(cluster_factory: ClusterFactory, tmp_path: Path, s3: S3Server) -> None:
    """Old objects in clear beside encrypted ones; SDK, pdctl and Spark read them; rotation; a wrong and no key; a restore."""
    keys, bucket = tmp_path / "keys", Bucket(s3)
    cluster = cluster_factory("plain", pds=1, range_servers=3, tier_url=s3.tier_url, env=SETTINGS)

    async def fill(parts: range) -> None:
        async with await rangelog.connect(cluster.connect_string) as client:
            if not parts.start:
                await client.create_stream(STREAM, CONFIG)
            for each in parts:
                await append_part(client, each)

    asyncio.run(fill(range(1)))
    plain = eventually(lambda: tiered(Pdctl(cluster), 1), "nothing is tiered", 90)
    assert [each["encryption_key_id"] for each in plain] == [""]
    eventually(
        lambda: len(bucket.in_clear()) >= 3,
        "object, manifest and snapshot are there, and what is searched for is found",
        90,
    )
    assert Pdctl().json("encryption", "new-key", str(keys), "--id", "k1")["current"] is True
    cluster = again(cluster_factory, cluster, {KEYS_DIR_ENV: str(keys)})
    pdctl = pdctl_of(cluster, keys)

    asyncio.run(fill(range(1, 3)))
    objects = eventually(lambda: tiered(pdctl, 3), "encrypted objects are tiered", 90)
    assert [each["encryption_key_id"] for each in objects] == ["", "k1", "k1"]
    assert asyncio.run(cold_offsets(cluster, keys)) == list(range(3 * PER_PART))
    check_refusals(cluster, objects[1]["key"], tmp_path)

    pdctl.ok("encryption", "rotate", str(keys), "--to", pdctl.json("encryption", "new-key", str(keys))["key_id"])
    newest = str(pdctl.json("encryption", "list", str(keys))[0]["key_id"])
    asyncio.run(fill(range(3, 4)))
    objects = eventually(lambda: tiered(pdctl, 4), "objects are tiered with the new key", 90)
    assert [each["encryption_key_id"] for each in objects] == ["", "k1", "k1", newest]
    assert asyncio.run(cold_offsets(cluster, keys)) == list(range(4 * PER_PART))
    used = {each["key_id"]: each["object_count"] for each in pdctl.json("encryption", "usage")}
    assert used == {"": 1, "k1": 2, newest: 1}
    check_operators_commands(pdctl, s3)

    spark_job(cluster, keys, "compact", "--stream", STREAM, "--rewrite-keys", "--target-size", "64k")
    eventually(
        lambda: [each["key_id"] for each in pdctl.json("encryption", "usage")] == [newest],
        "earlier objects are gone",
        90,
    )
    assert asyncio.run(cold_offsets(cluster, keys)) == list(range(4 * PER_PART))
    spark_job(cluster, keys, "export", STREAM, "--to", str(tmp_path / "out"))
    assert sorted(offsets_of(tmp_path / "out")) == list(range(4 * PER_PART))
    eventually(lambda: not bucket.in_clear(), "the objects, the manifest and the snapshots in clear are gone", 90)
    assert {data[:4] for data in bucket.contents().values()} == {b"PARE", b"RLEN"}
    eventually(lambda: status(pdctl)["tier_snapshot"]["current"], "a snapshot has all changes", 90)
    check_logs(cluster, keys)

    cluster.kill_all()
    restore(cluster_factory, s3.tier_url, keys, bucket)


def again(cluster_factory: ClusterFactory, cluster: Cluster, env: dict[str, str]) -> Cluster:
    """Stop a cluster and start it on its directory with other settings."""
    cluster.stop()
    return cluster_factory(cluster.directory.name, env=SETTINGS | env)


def check_refusals(cluster: Cluster, key: str, tmp_path: Path) -> None:
    """Without keys, and with another key of the same id: a typed error that names the key; nothing else is harmed by it."""
    with pytest.raises(EncryptionKeyMissing, match=r"is encrypted with key 'k1', and this program has no keys"):
        asyncio.run(cold_offsets(cluster, None))
    other = tmp_path / "other"
    KeyDirectory(str(other)).make_key("k1")
    with pytest.raises(EncryptionKeyMissing, match=r"'k1' in .* is not the key that was used"):
        asyncio.run(cold_offsets(cluster, other))
    said = pdctl_of(cluster, None).fails(1, "stream", "read", STREAM, "--start", str(PER_PART), "--limit", "1")
    assert "'k1'" in said and key in said


def check_operators_commands(pdctl: Pdctl, s3: S3Server) -> None:
    """They compare bytes, or read rows with the keys of their environment; a restore reads with them, too."""
    assert json.loads(pdctl("object", "scrub", "--verify", "-o", "json").stdout)["found"]["damaged"] == 0
    verified = pdctl("verify", STREAM, "--deep")
    assert verified.returncode == 0, verified
    assert pdctl.json("object", "manifest", STREAM)["objects"][1]["encryption_key_id"] == "k1"
    without = Pdctl()
    without.environment |= CREDENTIALS
    eventually(lambda: status(pdctl)["tier_snapshot"]["current"], "a snapshot has all changes", 90)
    assert "is encrypted with key" in without.fails(1, "restore", "--from", s3.tier_url, "--dry-run")


def offsets_of(directory: Path) -> list[int]:
    """The offsets in exported files."""
    files = sorted(directory.rglob("*.parquet"))
    return [each for file in files for each in pq.ParquetFile(file).read(columns=["offset"])["offset"].to_pylist()]


def check_logs(cluster: Cluster, keys: Path) -> None:
    """No key is in a log, as bytes or as text."""
    logs = b"".join(each.read_bytes() for each in (cluster.directory / "logs").iterdir())
    for each in keys.glob("*.key"):
        data = each.read_bytes()
        assert data not in logs and data.hex().encode() not in logs


def restore(cluster_factory: ClusterFactory, url: str, keys: Path, bucket: Bucket) -> None:
    """A new cluster with the keys comes back from the bucket, and goes on encrypting."""
    new = cluster_factory("new", pds=1, range_servers=3, tier_url=url, env=SETTINGS | {KEYS_DIR_ENV: str(keys)})
    pdctl = pdctl_of(new, keys)
    pdctl.environment |= CREDENTIALS
    assert pdctl.json("restore", "--from", url, "--yes", "--verify")["restored"]
    assert asyncio.run(cold_offsets(new, keys)) == list(range(4 * PER_PART))

    async def more() -> None:
        async with await rangelog.connect(new.connect_string) as client:
            await append_part(client, 4)

    asyncio.run(more())
    objects = eventually(lambda: tiered(pdctl, 5), "the restored cluster tiers", 90)
    assert all(each["encryption_key_id"] for each in objects) and not bucket.in_clear()


def test_a_server_without_keys_stores_nothing(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Where the placement drivers have keys and no range server has: nothing is in clear; a key that is missing is said."""
    keys = tmp_path / "keys"
    Pdctl().ok("encryption", "new-key", str(keys), "--id", "k1")
    tier = tmp_path / "tier"
    only_pd = {"RANGELOG_PD_ENCRYPTION_KEYS_DIR": str(keys)}
    cluster = cluster_factory("c", pds=1, range_servers=1, tier_url=f"file://{tier}", env=SETTINGS | only_pd)

    async def fill() -> None:
        async with await rangelog.connect(cluster.connect_string) as client:
            await client.create_stream(STREAM, StreamConfig(replicas=1, acks=1))
            await append_part(client, 0)

    asyncio.run(fill())
    pdctl = pdctl_of(cluster, keys)
    refused = "this cluster encrypts its objects, and rs1 would write one in clear"
    log = cluster.directory / "logs" / "rs1.log"
    eventually(lambda: refused in log.read_text(), "the refusal is logged", 90)
    assert tiered(pdctl, 1) == []
    assert not list(tier.rglob("*.parquet"))
    cluster = again(cluster_factory, cluster, only_pd | {"RANGELOG_SERVER_ENCRYPTION_KEYS_DIR": str(tmp_path / "none")})
    eventually(
        lambda: [each for each in status(pdctl)["tier_checks"] if "directory of keys" in each["error"]],
        "the status says which server has no key",
        90,
    )
    shutil.copytree(keys, tmp_path / "none")
    objects = eventually(lambda: tiered(pdctl, 1), "it tiers once the key is there", 90)
    assert [each["encryption_key_id"] for each in objects] == ["k1"]
