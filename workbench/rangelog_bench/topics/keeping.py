"""How fast journals and tables are: commands and recovery of one journal, rows of a table at one broker."""

from __future__ import annotations

from pathlib import Path

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.meter import Meter
from rangelog_bench.ours import NAME, SETTING
from rangelog_bench.topics.client_process import ClientProcesses
from rangelog_bench.topics.topic_cluster import topic_cluster
from rangelog_bench.workload import Effort, Emit

_CALLERS = 250
"""Of each client process."""
_PARTITIONS = 4
_COMMAND_BYTES = 100


async def measure_journal(directory: Path, effort: Effort, emit: Emit) -> None:
    """Commands of one journal, in a process with a broker's settings; then how long a new owner takes to have its state."""
    async with topic_cluster(directory, brokers=0) as cluster:
        streams = [await cluster.new_stream() for _ in range(2)]
        settings = {
            "endpoints": cluster.endpoints, "streams": streams, "seconds": effort.seconds,
            "state_bytes": effort.journal_state_bytes,
        }  # fmt: skip
        async with ClientProcesses(directory / "clients") as clients:
            await clients.start("journal", [settings])
            meter = Meter(cluster.pids())
            (done,) = await clients.ask({})
            rate = done["commands"] / done["seconds"]
            emit(Measurement(NAME, SETTING, m.JOURNAL_COMMANDS, _COMMAND_BYTES, round(rate, 1), m.PER_S, meter.stop()))
            (done,) = await clients.ask({})
            details = {"state_mb": round(done["state_bytes"] / 1e6, 1), "entries": done["entries"]}
            emit(Measurement(NAME, SETTING, m.JOURNAL_RECOVERY, 0, round(done["seconds"] * 1e3, 1), m.MS, details))


async def measure_table(directory: Path, effort: Effort, emit: Emit) -> None:
    """Single rows of a table of one broker, read and set if their version is known, by many callers at once."""
    async with topic_cluster(directory, brokers=1) as cluster, cluster.client_processes() as clients:
        await cluster.client.tables.create("bench", partitions=_PARTITIONS)
        each = {"endpoints": cluster.endpoints, "table": "bench", "callers": _CALLERS}
        names = [f"client-{number}" for number in range(effort.client_processes)]
        await clients.start("table", [{**each, "name": name} for name in names])
        for metric, operation in ((m.TABLE_GET, "get"), (m.TABLE_PUT, "put")):
            await clients.ask({"operation": operation, "seconds": effort.seconds / 10})
            meter = Meter(cluster.pids())
            answers = await clients.ask({"operation": operation, "seconds": effort.seconds})
            used = meter.stop()
            took_s = max(a["ended_s"] for a in answers) - min(a["started_s"] for a in answers)
            rate = sum(answer["count"] for answer in answers) / took_s
            details = {"client_processes": len(names), "callers": len(names) * _CALLERS} | used
            emit(Measurement(NAME, SETTING, metric, _COMMAND_BYTES, round(rate, 1), m.PER_S, details))
