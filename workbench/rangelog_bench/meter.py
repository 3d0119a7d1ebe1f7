"""Processor time and memory of the measured processes, and of all others: from /proc.

Each figure includes the processor time of other processes meanwhile. Standard library only.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CLIENT = "client"


class Meter:
    """Counts from its creation to `stop`. Children of the named processes count as theirs.

    `pids`: name of each measured process beside this one, which is the client.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._started_s = time.perf_counter()
        self._busy = _machine_ticks()
        self._before = _processes()

    def stop(self, user_bytes: int = 0) -> dict[str, Any]:
        """Return `cpu_s` by process name, the cores that others used, and with `user_bytes` the `cpu_s_per_gb` of all."""
        wall_s = time.perf_counter() - self._started_s
        after = _processes()
        names = self._names(after)
        used: dict[str, float] = {}
        for pid, name in names.items():
            ticks = after[pid][1] - self._before.get(pid, (0, 0))[1]
            used[name] = used.get(name, 0.0) + ticks / _TICKS_PER_S
        kernel_threads = {pid for pid, (parent, _) in after.items() if parent == 2 or pid == 2}
        kernel = sum(after[pid][1] - self._before.get(pid, (0, 0))[1] for pid in kernel_threads) / _TICKS_PER_S
        total = sum(used.values())
        others = max(0.0, (_machine_ticks() - self._busy) / _TICKS_PER_S - total - kernel)
        found: dict[str, Any] = {
            "cpu_s": {name: round(seconds, 2) for name, seconds in sorted(used.items())},
            "cores": round(total / wall_s, 2),
            "cores_of_others": round(others / wall_s, 2),
        }
        if user_bytes:
            found["cpu_s_per_gb"] = round(total / (user_bytes / 1e9), 2)
        return found

    def _names(self, processes: Mapping[int, tuple[int, int]]) -> dict[int, str]:
        names = {os.getpid(): CLIENT} | {pid: name for name, pid in self._pids.items() if pid in processes}
        grew = True
        while grew:
            grew = False
            for pid, (parent, _) in processes.items():
                if pid not in names and parent in names:
                    names[pid] = names[parent]
                    grew = True
        return {pid: name for pid, name in names.items() if pid in processes}


def give_back_memory() -> None:
    """Return unused memory of this process to the system, so that `memory_bytes` is the memory in use."""
    gc.collect()
    with suppress(AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def memory_bytes(pid: int) -> int:
    """Return a process's own memory (anonymous, resident) in bytes; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _processes() -> dict[int, tuple[int, int]]:
    """pid → (parent's pid, ticks of processor time). Children of the client that ended are lost: none matters."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    return found


def _machine_ticks() -> int:
    with open("/proc/stat") as stat:
        fields = stat.readline().split()
    return sum(int(fields[i]) for i in (1, 2, 3))  # user, nice, system
