"""Write data directories by the previous release for the tests of upgrades: `python tools/previous_data.py`.

What holds: every byte is written by the program of tests/fixtures/previous (a client of it, too), none by this one. Its
processes are killed, not stopped, so the logs end as those of a crash do. Beside the archive stands what its client was told:
each acked record, cursors, a group's positions.
"""

from __future__ import annotations

import asyncio
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "fixtures" / "previous"
DATA, EXPECTED = FOLDER / "data.tar.xz", FOLDER / "data.json"
LEFT_OUT = {"LOCK", "endpoint.json", "logs", "tmp"}
PLAN = "cluster.json"
TIER_URL, SECRET = "file:///to-be-set-by-who-unpacks-it", "0" * 64
WAIT_S = 90.0
_SETTINGS = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 << 20), "RANGELOG_PD_SNAPSHOT_ENTRIES": "100"}
SHARDS, TOPIC_RECORDS, CONSUMED = 2, 120, 50


# ---- the client, which runs with the previous release


async def write(pd: str) -> dict[str, Any]:
    """Write something of each kind; return what a reader must find."""
    import rangelog
    from rangelog import StreamConfig

    kinds = {
        "tiered": StreamConfig(),
        "cold": StreamConfig(hot_retention_seconds=1),
        "hot": StreamConfig(tiered=False, compression="zstd"),
        "open": StreamConfig(replicas=3),
        "trimmed": StreamConfig(),
    }
    told: dict[str, Any] = {"streams": {}}
    async with await rangelog.connect(pd) as client:
        for name, config in kinds.items():
            await client.create_stream(name, config)
            records: list[list[Any]] = []
            for _ in range(3):
                records += await _append(client, name, len(records))
                if name != "open":
                    await client.seal_stream(name)
            told["streams"][name] = records
        await client.trim_stream("trimmed", 45)
        told["streams"]["trimmed"] = told["streams"]["trimmed"][45:]
        cursor = await client.cursors("tiered").set("reports", 25, metadata="of before")
        told["cursor"] = [cursor.offset, cursor.metadata]
        told |= await _topic(client)
    return told


async def _append(client: Any, name: str, first: int) -> list[list[Any]]:
    """Append forty records; return offset, key, value, headers of each."""
    found = []
    async with client.writer(name) as writer:
        for number in range(first, first + 40):
            key = None if number % 3 == 0 else b"key %d" % (number % 5)
            headers = {"number": b"%d" % number} if number % 2 else {}
            value = b"%s %d" % (name.encode(), number)
            ack = await writer.append(value, key=key, headers=headers)
            shown = {each: headers[each].decode() for each in headers}
            found.append([ack.offset, key.decode() if key is not None else None, value.decode(), shown])
    return found


async def _topic(client: Any) -> dict[str, Any]:
    await client.topics.create("flights", shards=SHARDS)
    acked = []
    async with client.producer("flights") as producer:
        for number in range(TOPIC_RECORDS):
            ack = await producer.send(b"flight %d" % number, key=b"%d" % (number % 9))
            acked.append([ack.shard, ack.offset, f"flight {number}"])
    consumed = []
    async with client.group("billing", "flights") as member:
        async for record in member:
            consumed.append([record.shard_id, record.offset, record.value.decode()])
            if len(consumed) == CONSUMED:
                await member.commit()
                break
    return {"topic": acked, "consumed": consumed}


# ---- the cluster around it


def make() -> None:
    """Write archive and expectations."""
    sys.path.insert(0, str(ROOT))
    from rangelog_cli.local.health import wait_healthy
    from rangelog_cli.local.processes import Cluster
    from tests.integration.helpers.previous_program import install

    with tempfile.TemporaryDirectory() as scratch:
        previous = install(Path(scratch) / "installed")
        directory = Path(scratch) / "cluster"
        cluster = Cluster.open(directory, pds=1, range_servers=3, brokers=1, env=previous.env | _SETTINGS)
        with cluster:
            wait_healthy(cluster)
            environment = dict(os.environ) | previous.env
            command = [sys.executable, str(Path(__file__).resolve()), "--write", cluster.connect_string]
            done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=WAIT_S)
            told = json.loads(done.stdout)
            told["states"] = _wait_for_the_tier(cluster.connect_string, environment)
            cluster.kill_all()
        DATA.write_bytes(_packed(directory))
    told["commit"] = previous.commit
    EXPECTED.write_text(json.dumps(told, separators=(",", ":")) + "\n")
    print(f"previous_data: {DATA.relative_to(ROOT)}, {DATA.stat().st_size:,} bytes, written by {previous.commit}")


def _wait_for_the_tier(pd: str, environment: dict[str, str]) -> dict[str, list[str]]:
    """Until what is sealed is in the tier, and range servers have dropped what is only to be there; return ranges' states."""

    def rows(*arguments: str) -> Any:
        command = [sys.executable, "-m", "pdctl", "--pd", pd, *arguments, "-o", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=WAIT_S)
        return json.loads(done.stdout)

    def done() -> bool:
        tiered = all(len(rows("object", "list", name)) == 3 for name in ("tiered", "cold"))
        return tiered and not any(
            each["replicas"] for each in rows("range", "list", "cold") if each["state"] == "sealed"
        )

    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"previous_data: not in the tier in time: {rows('range', 'list', 'cold')}")
        time.sleep(0.5)
    return {name: [each["state"] for each in rows("range", "list", name)] for name in ("tiered", "cold", "hot", "open")}


def _packed(directory: Path) -> bytes:
    """Return the files as an archive, without what belongs to running processes, and with a plan for any place."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if LEFT_OUT & set(name.parts) or not path.is_file():
                continue
            content = path.read_bytes()
            if str(name) == PLAN:
                plan = json.loads(content) | {"tier_url": TIER_URL, "raft_secret": SECRET}
                content = json.dumps(plan, indent=2).encode()
            entry = tarfile.TarInfo(str(name))
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return lzma.compress(target.getvalue(), preset=6)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        print(json.dumps(asyncio.run(write(sys.argv[2]))))
    else:
        make()
