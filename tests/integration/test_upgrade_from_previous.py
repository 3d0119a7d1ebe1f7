"""A cluster of the previous release becomes one of this release, process by process, while clients of both releases work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import StreamConfig, TopicConfig
from rangelog_cli.local.processes import Cluster, Process, stop_all
from rangelog_pd.state.versions import FEATURE_LEVEL
from tests.integration.helpers.pd_group import wait_for_version
from tests.integration.helpers.pdctl_command import Pdctl
from tests.integration.helpers.previous_program import PreviousProgram, install
from tests.support.waiting import Seen, until, until_arrived

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

RELEASES = ("previous", "present")
PAIRS = (("write", "read", "stream"), ("produce", "consume", "topic"), ("produce", "commit", "topic"))
"""The group's journal has brokers of both releases as its owners, in turn."""
ROLL_BYTES = 128 * 1024
GAP_S_MAX = 10.0
"""Without an ack of one writer, on a machine with little to spare. A stopped range server costs a seal; a placement driver an
election; a broker the move of its shards."""
GROW_S = 60.0
UPGRADE_S = 500.0
SMALL_COUNT = 12
PACKING = {
    "RANGELOG_PD_AUTO_FINALIZE": "false",
    "RANGELOG_PD_REPACK_TARGET_BYTES": str(1 << 20),
    "RANGELOG_PD_REPACK_MIN_AGE_MS": "1000",
}
"""The previous release reads none of them: it has neither packing nor `finalize`."""


@dataclass
class Log:
    """What one client wrote into its output."""

    acked: dict[tuple[int, int], int] = field(default_factory=dict)
    read: list[tuple[int, int, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    acked_s: list[float] = field(default_factory=list)
    program: str = ""

    @property
    def gap_s(self) -> float:
        """The longest time between two acks."""
        return max((after - before for before, after in zip(self.acked_s, self.acked_s[1:])), default=0.0)


class Client:
    """One process of helpers/upgrade_client.py."""

    def __init__(self, directory: Path, release: str, role: str, pd: str, name: str, env: dict[str, str]) -> None:
        self.release, self.role, self.name = release, role, name
        self.output = directory / f"{release}-{role}.lines"
        script = Path(__file__).parent / "helpers" / "upgrade_client.py"
        arguments = [str(script), role, pd, name, str(self.output)]
        self.process = Process(f"{release}-{role}", arguments, log_path=directory / f"{release}-{role}.log", env=env)
        self._log = Log()
        self._parsed_bytes = 0

    def log(self) -> Log:
        """What it wrote up to now; each line is parsed once."""
        found = self._log
        for line in self._new_lines():
            what, time_s, shard, offset, rest = line.split(" ", 4)
            if what == "began":
                found.program = rest
            elif what == "failed":
                found.failed.append(rest)
            elif what == "read":
                found.read.append((int(shard), int(offset), int(rest)))
            else:
                assert (int(shard), int(offset)) not in found.acked, "one offset was acked twice"
                found.acked[int(shard), int(offset)] = int(rest)
                found.acked_s.append(float(time_s))
        return found

    def _new_lines(self) -> list[str]:
        if not self.output.exists():
            return []
        with self.output.open("rb") as file:
            file.seek(self._parsed_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._parsed_bytes += len(whole) + len(newline)
        return whole.decode().splitlines()


class Clients:
    """A writer, a producer, their readers and a group, of each release."""

    def __init__(self, directory: Path, pd: str, previous: PreviousProgram) -> None:
        envs = {"previous": previous.env, "present": {}}
        self.all = {
            (release, role): Client(directory, release, role, pd, f"{release}-{name}", envs[release])
            for release in RELEASES
            for *roles, name in PAIRS
            for role in roles
        }

    def pairs(self) -> Iterator[tuple[Client, Client]]:
        """Each writing client and the reader of the same."""
        for release in RELEASES:
            for writing, reading, _ in PAIRS:
                yield self.all[release, writing], self.all[release, reading]

    async def grow(self, count: int) -> None:
        """Until every writer has that many more acks, and its reader has read them."""
        wanted = {writer.output: len(writer.log().acked) + count for writer, _ in self.pairs()}

        def counted(client: Client, records: Callable[[Client], Sized]) -> int:
            assert client.process.running, f"{client.process.name} ended: {client.process.last_words()}"
            return len(records(client))

        for writer, reader in self.pairs():
            least = wanted[writer.output]
            acked = partial(counted, writer, lambda each: each.log().acked)
            await until(lambda acked=acked, least=least: acked() >= least, f"{writer.process.name}: no acks", GROW_S)
            read = partial(counted, reader, lambda each: each.log().read)
            await until_arrived(read, least, f"{reader.process.name} reads too little", GROW_S, by=operator.ge)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> PreviousProgram:
    """The previous release, installed."""
    return install(tmp_path_factory.mktemp("previous") / "installed")


@contextlib.contextmanager
def running(clients: Clients) -> Iterator[None]:
    """All clients, until the end of the block."""
    processes = [each.process for each in clients.all.values()]
    try:
        for process in processes:
            process.start()
        yield
    finally:
        stop_all(processes, 30)


@pytest.mark.hasty
@pytest.mark.parametrize(
    "gap_s_max",
    [
        pytest.param(math.inf, marks=pytest.mark.long, id="promises"),
        pytest.param(GAP_S_MAX, marks=pytest.mark.measure, id="gaps"),
    ],
)
async def test_each_process_of_the_previous_release_is_replaced_under_load(
    cluster_factory: Any, tmp_path: Path, previous: PreviousProgram, capsys: Any, gap_s_max: float
) -> None:
    """Nothing acked is lost or there twice, order stays, acks go on; the version rises with the last. Measured: the gaps."""
    assert previous.feature_level < FEATURE_LEVEL
    cluster = cluster_factory(range_servers=4, brokers=2, env=previous.env | PACKING)
    await _brokers_begin_anew(cluster)
    await _create(cluster)
    clients = Clients(tmp_path, cluster.connect_string, previous)
    with running(clients):
        await clients.grow(50)
        await _upgrade(cluster, previous, clients)
        await clients.grow(100)
        for name in ("pd3", "broker1"):
            await _the_previous_release_stops(cluster, previous, name)
        await clients.grow(50)
        for each in clients.all.values():
            if each.role in ("write", "produce"):
                each.process.request_stop()
        await _caught_up(clients)
    logs = {key: client.log() for key, client in clients.all.items()}
    for (release, _), log in logs.items():
        assert str(previous.directory) in log.program if release == "previous" else "site-packages" not in log.program
    await _judge(cluster, logs)
    gaps = ", ".join(f"{' '.join(key)} {log.gap_s:.2f} s" for key, log in logs.items() if log.acked)
    acked = sum(len(log.acked) for log in logs.values())
    with capsys.disabled():
        print(f"\nupgrade: {previous.commit[:7]} level {previous.feature_level} to {FEATURE_LEVEL}: "
              f"processes={len(cluster.members)} acked={acked} lost=0 twice=0; longest gap without an ack: {gaps}")  # fmt: skip
    assert max(log.gap_s for log in logs.values()) < gap_s_max


@pytest.mark.hasty
@pytest.mark.long
async def test_journals_of_two_members_are_left_by_a_drain(cluster_factory: Any, previous: PreviousProgram) -> None:
    """A broker of the previous release keeps journals of two members, and `check` lets neither server go, until one is drained
    as OPERATIONS.md says."""
    cluster = cluster_factory(range_servers=4, brokers=2, env=previous.env)
    pdctl = Pdctl(cluster)
    for name in ("rs3", "rs4"):
        await asyncio.to_thread(pdctl.ok, "server", "cordon", name)
    await _brokers_begin_anew(cluster)
    for name in ("rs3", "rs4"):
        await asyncio.to_thread(pdctl.ok, "server", "uncordon", name)
    for process in cluster.placement_drivers.values():
        process.env.pop("PYTHONPATH")
        await asyncio.to_thread(cluster.restart, process.name)

    async def next_is(name: str, why: str = "") -> list[str]:
        """Wait until a server is next and all others wait for this reason; return the others."""

        async def look() -> Seen:
            told = await _asked(pdctl)
            return Seen(told["next"] == name and all(why in each["reason"] for each in told["waits"]), told)

        told: Any = (await until(look, f"{name} is not next", GROW_S)).value
        return [each["name"] for each in told["waits"]]

    assert await next_is("rs3", "would have too few copies") == ["rs1", "rs2"]
    drained = await asyncio.to_thread(pdctl, "server", "drain", "rs1", "--wait", "--timeout", "50s")
    assert drained.returncode == 0, drained
    assert await next_is("rs1") == []
    cluster.members["rs1"].env.pop("PYTHONPATH")
    await asyncio.to_thread(cluster.restart, "rs1")
    await asyncio.to_thread(pdctl.ok, "server", "uncordon", "rs1")
    await next_is("rs2")


async def _brokers_begin_anew(cluster: Cluster) -> None:
    """Restart the brokers: those of the previous release open their journals on the servers that are registered, be it two, and
    stay there."""
    for name in cluster.brokers:
        await asyncio.to_thread(cluster.restart, name)


async def _create(cluster: Cluster) -> None:
    """What the clients write to: small ranges, so that placement and the tier have work; and many small objects."""
    small = StreamConfig(range_size_bytes_max=ROLL_BYTES)
    async with await rangelog.connect(cluster.connect_string) as client:
        for release in RELEASES:
            await client.create_stream(f"{release}-stream", small)
            await client.topics.create(f"{release}-topic", TopicConfig(stream=small), shards=2)
        await client.create_stream("small")
        for number in range(SMALL_COUNT):
            await client.append("small", [b"%d" % number])
            await client.seal_stream("small")


async def _upgrade(cluster: Cluster, previous: PreviousProgram, clients: Clients) -> None:
    """As an operator does it: `check` says who is next, until nobody is; then `finalize`."""
    pdctl = Pdctl(cluster)
    replaced: list[str] = []
    put_back: set[str] = set()

    async def small_count() -> int:
        return len(await asyncio.to_thread(pdctl.json, "object", "list", "small"))

    async def all_tiered() -> bool:
        return await small_count() >= SMALL_COUNT

    async def next_is_known() -> Seen:
        told = await _asked(pdctl)
        return Seen(told["next"] and told["next"] not in replaced, told)

    await until(all_tiered, "the previous release does not put them into the tier", UPGRADE_S)
    while len(replaced) < len(cluster.members):
        # It is not heard of yet, or ranges have too few copies for a moment.
        told: Any = (await until(next_is_known, f"only {replaced} were replaced", UPGRADE_S)).value
        assert told["cluster_version"] == previous.feature_level
        refused = await asyncio.to_thread(pdctl, "upgrade", "finalize", "--yes")
        assert refused.returncode == 5, "the cluster version rose while a process is of the previous release"
        name = told["next"]
        cluster.members[name].env.pop("PYTHONPATH")
        await asyncio.to_thread(cluster.restart, name)
        await clients.grow(50)
        if (kind := name.rstrip("0123456789")) in put_back:
            replaced.append(name)
            continue
        put_back.add(kind)  # until `finalize` there is a way back, which the first of each kind goes
        cluster.members[name].env.update(previous.env)
        await asyncio.to_thread(cluster.restart, name)
        await clients.grow(50)
    assert set(replaced[:3]) == set(cluster.placement_drivers), "placement drivers go first"

    async def none_is_older() -> Seen:
        told = await _asked(pdctl)
        return Seen(not any(each["older"] for each in told["processes"]), told)

    told = (await until(none_is_older, "a process of the previous release is known")).value
    assert told["cluster_version"] == previous.feature_level and told["finalize"]["hindrances"] == []
    assert await small_count() == SMALL_COUNT
    done = await asyncio.to_thread(pdctl.json, "upgrade", "finalize", "--yes")
    assert done == {"cluster_version_before": previous.feature_level, "cluster_version": FEATURE_LEVEL}
    await wait_for_version(cluster, FEATURE_LEVEL)

    async def packed() -> bool:
        return await small_count() != SMALL_COUNT

    await until(packed, "small objects are not packed, which level 7 brings")


async def _asked(pdctl: Pdctl) -> dict[str, Any]:
    done = await asyncio.to_thread(pdctl, "upgrade", "check", "-o", "json")
    told: dict[str, Any] = json.loads(done.stdout)
    left = any(each["older"] for each in told["processes"])  # who is next may not be known yet
    assert done.returncode == int(left or told["cluster_version"] < FEATURE_LEVEL), done
    return told


async def _the_previous_release_stops(cluster: Cluster, previous: PreviousProgram, name: str) -> None:
    """After `finalize` there is no way back: a process of before ends and says why; its data stays good."""
    process = cluster.members[name]
    await asyncio.to_thread(cluster.kill, name)
    process.env.update(previous.env)
    process.start()
    await until(lambda: not process.running, "it goes on", GROW_S)
    assert "feature level" in process.last_words()
    process.env.pop("PYTHONPATH")
    await asyncio.to_thread(cluster.start_member, name)


async def _caught_up(clients: Clients) -> None:
    """Until the readers have read all that was acked."""

    def read(reader: Client) -> set[tuple[int, int]]:
        return {(shard, offset) for shard, offset, _ in reader.log().read}

    for writer, reader in clients.pairs():
        await until(lambda process=writer.process: not process.running, f"{writer.process.name} goes on", GROW_S)
        acked = set(writer.log().acked)
        what = f"{reader.process.name} does not catch up"
        await until_arrived(partial(read, reader), acked, what, GROW_S, by=operator.ge)


async def _judge(cluster: Cluster, logs: dict[tuple[str, str], Log]) -> None:
    """Readers and groups that were there all the time, and one that reads all of it now, saw what was acked: once, in order."""
    async with await rangelog.connect(cluster.connect_string) as client:
        for release in RELEASES:
            now = [(0, each.offset, int(each.value[:9])) async for each in client.reader(f"{release}-stream")]
            _check(logs[release, "write"], logs[release, "read"].read, now)
            found = [
                (each.shard_id, each.offset, int(each.value[:9]))
                async for each in client.topic_reader(f"{release}-topic")
            ]
            _check(logs[release, "produce"], logs[release, "consume"].read, logs[release, "commit"].read, found)


def _check(writer: Log, *seen: Sequence[tuple[int, int, int]]) -> None:
    assert writer.failed == [], "an append failed although every process came back"
    for records in seen:
        at = {(shard, offset): number for shard, offset, number in records}
        assert len(at) == len(records), "one offset was read twice"
        assert at == writer.acked, "a record is lost, is another one, or was never acked"
        assert len(set(at.values())) == len(at), "a record is there twice"
        by_shard: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for shard, offset, number in records:
            by_shard[shard].append((offset, number))
        for shard, of in by_shard.items():
            assert of == sorted(of), f"shard {shard} was not read in order of offsets"
            assert [number for _, number in of] == sorted(number for _, number in of), f"shard {shard}: not as sent"
