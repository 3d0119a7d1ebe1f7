"""What TLS, rights, tokens, the audit log and encrypted logs cost, as docs/security.md and docs/encryption.md say it.

    .venv/bin/python bench/security_cost.py --pairs 9 --seconds 3

Clusters of up to four kinds run beside each other (plain, with TLS, with TLS and rights enforced, with encrypted logs) and
are measured in turn, so that what the machine does meanwhile strikes all alike. Processor time is that of the client and the
range servers, of calls that of the placement drivers as well. A line of JSON for each figure: the medians, and the median of
the ratios of each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import rangelog
from rangelog.errors import RightMissing
from rangelog_bench.loop import run_on_loop
from rangelog_bench.meter import CLIENT, Meter
from rangelog_bench.ours import pump_writer
from rangelog_bench.payload import make_record
from rangelog_bench.workload import SIZES
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster

PLAIN, TLS, RIGHTS, TOKEN, AUDIT = "plain", "tls", "tls+rights", "tls+rights+token", "tls+rights+audit"
ENCRYPTED = "encrypted log"
PARTS: Mapping[str, tuple[str, ...]] = {
    "tls": (PLAIN, TLS),
    "rights": (TLS, RIGHTS),
    "calls": (PLAIN, TLS, RIGHTS),
    "log": (PLAIN, ENCRYPTED),
}
"""What is compared, and the clusters that it needs."""
RANGE_SERVERS = 3
PASSES = 2 * RANGE_SERVERS
"""How often each byte of an append is encrypted or decrypted, by all together."""
RECORD_BYTES = 16 * 1024
"""The largest record of TLS."""
_TOKENS = {f"RANGELOG_{role}_TOKENS": "true" for role in ("PD", "SERVER")}
_HEARTBEATS_S = 3.0
"""Until every range server has heard that rights are enforced."""
_STREAM = "cost-{}"

Figures = dict[str, float]
Measure = Callable[[str], Awaitable[Figures]]


def emit(what: str, details: Mapping[str, Any]) -> None:
    """Print one figure."""
    print(json.dumps({"what": what, **details}), flush=True)


class Bench:
    """The clusters and their clients, by kind."""

    def __init__(self, directory: Path, seconds: float, parts: Sequence[str]) -> None:
        self.seconds = seconds
        self._kinds = sorted({kind for part in parts for kind in PARTS[part]})
        self.clusters = {kind: self._open(directory / kind.replace(" ", "-"), kind) for kind in self._kinds}
        if RIGHTS in self.clusters:
            self.clusters |= {TOKEN: self.clusters[RIGHTS], AUDIT: self.clusters[RIGHTS]}
        self.clients: dict[str, rangelog.Client] = {}
        self._streams = 0

    @staticmethod
    def _open(directory: Path, kind: str) -> Cluster:
        tls = kind not in (PLAIN, ENCRYPTED)
        env = {"RANGELOG_PD_REPACK_TARGET_BYTES": "0"} | (_TOKENS if tls else {})
        return Cluster.open(
            directory,
            pds=3,
            range_servers=RANGE_SERVERS,
            brokers=0,
            tls=tls or None,
            encrypted=kind == ENCRYPTED or None,
            env=env,
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Start all, enforce rights in one, and connect. What is started is stopped by the stack."""
        for kind in self._kinds:
            stack.push_async_callback(asyncio.to_thread, self.clusters[kind].stop)
            await asyncio.to_thread(self.clusters[kind].start)
            await asyncio.to_thread(wait_healthy, self.clusters[kind])
        if RIGHTS in self.clusters:
            self.pdctl("acl", "grant", "client:local", "append,read,admin", "stream", "cost-*")
            self.pdctl("acl", "enforce", "on", "--yes")
            await asyncio.sleep(_HEARTBEATS_S)
        for kind in (each for each in self.clusters if each != AUDIT):
            cluster = self.clusters[kind]
            tls, token = cluster.client_tls, None
            if kind == TOKEN and tls is not None:
                token = self.pdctl("token", "create", "cost", "--for", "client:local").strip()
                tls = rangelog.TlsConfig(tls.ca)
            self.clients[kind] = await stack.enter_async_context(
                await rangelog.connect(cluster.connect_string, tls=tls, token=token)
            )
        if RIGHTS in self.clusters:
            self.clients[AUDIT] = self.clients[RIGHTS]
            await self._check_rights()
        if ENCRYPTED in self.clusters:
            await self._check_encryption()

    async def _check_encryption(self) -> None:
        """Fail if a record is found in the encrypted log, or is not found in the other: then nothing would be measured."""
        sought = os.urandom(64).hex().encode()
        for kind in (PLAIN, ENCRYPTED):
            await self.clients[kind].append(await self.new_stream(kind), [sought])
            segments = [*self.clusters[kind].directory.glob("**/wal-*.seg")]
            found = any(sought in each.read_bytes() for each in segments)
            assert segments and found == (kind == PLAIN), f"{kind}: the record is {'' if found else 'not '}in the log"

    async def _check_rights(self) -> None:
        """Fail if a stranger may append: then nothing would be measured."""
        name = await self.new_stream(RIGHTS)
        files, text = self.clusters[RIGHTS].client_tls, self.pdctl("token", "create", "stranger").strip()
        assert files is not None
        async with await rangelog.connect(
            self.clusters[RIGHTS].connect_string, tls=rangelog.TlsConfig(files.ca), token=text
        ) as stranger:
            try:
                await stranger.append(name, [b"x"])
            except RightMissing:
                return
        raise AssertionError("rights are not enforced")

    def pdctl(self, *arguments: str) -> str:
        """Administer the cluster with rights; return what is printed."""
        cluster = self.clusters[RIGHTS]
        assert cluster.tls is not None
        files = [part for key, path in asdict(cluster.tls).items() for part in (f"--{key}", path)]
        command = [sys.executable, "-m", "pdctl", "--pd", cluster.connect_string, *files, *arguments]
        return subprocess.run(command, capture_output=True, timeout=60, check=True, text=True).stdout

    async def new_stream(self, kind: str) -> str:
        """Create a stream that is not tiered; return its name."""
        self._streams += 1
        name = _STREAM.format(self._streams)
        await self.clients[kind].create_stream(name, rangelog.StreamConfig(tiered=False))
        return name

    def meter(self, kind: str) -> Meter:
        """Count from now on."""
        return Meter({name: each.pid for name, each in self.clusters[kind].members.items() if each.running})

    async def in_turn(self, kinds: Sequence[str], pairs: int, measure: Measure) -> dict[str, list[Figures]]:
        """Measure each kind so many times, each round in another order."""
        found: dict[str, list[Figures]] = {kind: [] for kind in kinds}
        for number in range(pairs):
            turn = number % len(kinds)
            for kind in (*kinds[turn:], *kinds[:turn]):
                found[kind].append(await measure(kind))
        return found

    async def compare_appends(self, part: str, kinds: Sequence[str], pairs: int, size: int) -> dict[str, list[Figures]]:
        """Compare both ways to append; return what was found flat out."""
        flat = await self.in_turn(kinds, pairs, lambda kind: self.flat_out(kind, size))
        compare(f"{part}_flat_out_{size}", flat, kinds[0])
        single = await self.in_turn(kinds, pairs, lambda kind: self.one_in_flight(kind, size))
        compare(f"{part}_one_in_flight_{size}", single, kinds[0])
        return flat

    # ---- what is measured

    async def flat_out(self, kind: str, size: int) -> Figures:
        """One writer as fast as it can."""
        name, payload = await self.new_stream(kind), make_record(size, 0)
        async with self.clients[kind].writer(name) as writer:
            await pump_writer(writer, payload, time.monotonic() + self.seconds / 5)
            meter, started_s = self.meter(kind), time.monotonic()
            count = await pump_writer(writer, payload, started_s + self.seconds)
            took_s, used = time.monotonic() - started_s, meter.stop()["cpu_s"]
        await self.clients[kind].delete_stream(name)
        gb = count * size / 1e9
        servers = sum(seconds for process, seconds in used.items() if process.startswith("rs"))
        return {
            "mb_per_s": gb * 1e3 / took_s,
            "cpu_s_per_gb": (used[CLIENT] + servers) / gb,
            "client_s_per_gb": used[CLIENT] / gb,
            "server_s_per_gb": servers / RANGE_SERVERS / gb,
        }

    async def one_in_flight(self, kind: str, size: int) -> Figures:
        """One append after the other: each is a frame for each server, which looks at the right."""
        name, payload = await self.new_stream(kind), make_record(size, 0)
        async with self.clients[kind].writer(name) as writer:
            await writer.append(payload)
            found = await self._one_by_one(kind, lambda _: writer.append(payload))
        await self.clients[kind].delete_stream(name)
        return found

    async def describe(self, kind: str) -> Figures:
        """A call on the placement drivers that changes nothing."""
        name = await self.new_stream(kind)
        found = await self._one_by_one(kind, lambda _: self.clients[kind].describe_stream(name), drivers=True)
        await self.clients[kind].delete_stream(name)
        return found

    async def change(self, kind: str) -> Figures:
        """A call that changes something, and is recorded while the audit log is on."""
        name, client = await self.new_stream(kind), self.clients[kind]

        def update(number: int) -> Awaitable[object]:
            changed = rangelog.StreamConfigChange(hot_retention_seconds=3600 + number % 2)
            return client.update_stream(name, changed)

        if kind == AUDIT:
            self.pdctl("audit", "enable")
        try:
            found = await self._one_by_one(kind, update, drivers=True)
        finally:
            if kind == AUDIT:
                self.pdctl("audit", "disable", "--yes")
        await client.delete_stream(name)
        return found

    async def _one_by_one(
        self, kind: str, call: Callable[[int], Awaitable[object]], *, drivers: bool = False
    ) -> Figures:
        """Call again and again. The processor time is that of the client and the range servers, or of all with `drivers`."""
        took_s: list[float] = []
        meter, end_s = self.meter(kind), time.perf_counter() + self.seconds
        while not took_s or time.perf_counter() < end_s:
            began_s = time.perf_counter()
            await call(len(took_s))
            took_s.append(time.perf_counter() - began_s)
        used = meter.stop()["cpu_s"]
        cpu_s = sum(used.values()) if drivers else sum(used[each] for each in used if not each.startswith("pd"))
        return {"p50_ms": statistics.median(took_s) * 1e3, "cpu_us": cpu_s / len(took_s) * 1e6}


def compare(what: str, found: Mapping[str, list[Figures]], first: str) -> None:
    """Print the medians of each kind, and those of the ratios to `first` in the same round."""
    for kind, rounds in found.items():
        medians = {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}
        ratios = {
            f"{key}_ratio": round(statistics.median(a[key] / b[key] for a, b in zip(rounds, found[first])), 3)
            for key in rounds[0]
            if all(each[key] for each in found[first])
        }
        emit(what, {"kind": kind, "rounds": len(rounds)} | medians | (ratios if kind != first else {}))


def cipher_s_per_gb(bits: int) -> float:
    """Processor time to encrypt a GB in records of TLS: the median of tries in the same noise as everything else."""
    cipher, nonce, data = AESGCM(os.urandom(bits // 8)), os.urandom(12), os.urandom(RECORD_BYTES)
    tries = []
    for _ in range(25):
        began_s = time.process_time()
        for _ in range(2_000):
            cipher.encrypt(nonce, data, None)
        tries.append((time.process_time() - began_s) / (2_000 * RECORD_BYTES / 1e9))
    return statistics.median(tries)


async def run(given: argparse.Namespace, directory: Path) -> None:
    """Measure all that was asked for."""
    bench = Bench(directory, given.seconds, given.only)
    async with AsyncExitStack() as stack:
        await bench.start(stack)
        for part in (each for each in ("tls", "log") if each in given.only):
            for size in given.size:
                found = await bench.compare_appends(part, PARTS[part], given.pairs, size)
                if part == "tls":
                    _say_bound(size, statistics.median(each["cpu_s_per_gb"] for each in found[PLAIN]))
        if "rights" in given.only:
            await bench.compare_appends("rights", (TLS, RIGHTS, TOKEN), given.pairs, SIZES[0])
        if "calls" in given.only:
            compare("call_describe", await bench.in_turn((TLS, PLAIN, RIGHTS, TOKEN), given.pairs, bench.describe), TLS)
            compare("call_change", await bench.in_turn((RIGHTS, PLAIN, TLS, AUDIT), given.pairs, bench.change), RIGHTS)


def _say_bound(size: int, plain_s_per_gb: float) -> None:
    """What would be left if TLS cost the cipher and nothing else, on processors that are full without it."""
    for bits in (256, 128):
        cipher_s = PASSES * cipher_s_per_gb(bits)
        left = plain_s_per_gb / (plain_s_per_gb + cipher_s)
        emit(f"cipher_alone_{size}", {"bits": bits, "s_per_gb": round(cipher_s, 2), "mb_per_s_ratio": round(left, 3)})


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="of records; default: all")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="default: all")
    given = parser.parse_args()
    given.size, given.only = given.size or SIZES, given.only or tuple(PARTS)
    with tempfile.TemporaryDirectory(prefix="rangelog-cost-") as directory:
        run_on_loop(lambda: run(given, Path(directory)))


if __name__ == "__main__":
    main()
