"""The Python processes of Spark begin by a fork of a process that has loaded what they import: pandas, pyarrow, pyspark.

Idea: Spark starts one daemon for each of a dozen kinds of work, and one process for each streaming query; from scratch each
costs seconds of imports. What Spark takes for its Python is a small program that hands its arguments, environment and streams
to this process, waits for the end of the forked one, and ends as that did.

What holds: when the small program ends, or is ended by Spark, so is the forked process; the others are ended by `spark_python`.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from tests.support import forked

LOADED = "tests.support.forked_spark_modules"
END_S = 5.0
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] != ["-m"] or not sys.argv[2].startswith("pyspark."):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
door = socket.socket(socket.AF_UNIX)
door.connect({address!r})
asked = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode() + b"\\n"
door.sendall(asked[socket.send_fds(door, [asked], [0, 1, 2]):])
sys.exit(int(door.recv(8) or b"1"))
"""


def _begin(arguments: list[str], env: dict[str, str], directory: str, fds: list[Any]) -> None:
    os.chdir(directory)
    forked._become(fds, env, arguments)
    for path in reversed(env.get("PYTHONPATH", "").split(os.pathsep)):
        if path not in sys.path and not path.endswith("pyspark.zip"):
            sys.path.insert(0, path)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


@contextmanager
def spark_python() -> Iterator[Path]:
    """Yield the program for PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, until the block ends."""
    running: set[forked.Forked] = set()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/door")
        door.listen(64)
        program = Path(folder) / "python"
        program.write_text(_PROGRAM.format(python=sys.executable, address=f"{folder}/door"))
        program.chmod(0o700)
        threading.Thread(target=_serve, args=(door, running), daemon=True).start()
        yield program
        door.shutdown(socket.SHUT_RDWR)
        for process in list(running):
            _end(process)


def _serve(door: socket.socket, running: set[forked.Forked]) -> None:
    with suppress(OSError):  # the door is shut
        while True:
            threading.Thread(target=_answer, args=(door.accept()[0], running), daemon=True).start()


def _answer(caller: socket.socket, running: set[forked.Forked]) -> None:
    with caller:
        asked, fds, *_ = socket.recv_fds(caller, 1 << 16, 3)
        while not asked.endswith(b"\n"):
            asked += caller.recv(1 << 16)
        arguments, env, directory = json.loads(asked)
        process = forked.Forked(_begin, arguments, env, directory, [forked._Fd(each) for each in fds])
        running.add(process)
        for each in fds:
            os.close(each)
        wait([process.sentinel, caller])  # the caller says nothing more: it is readable once it has ended
        _end(process)
        running.discard(process)
        with suppress(OSError):
            caller.sendall(b"%d" % (process.wait() % 256))


def _end(process: forked.Forked) -> None:
    """A daemon that is asked to end ends its workers."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except TimeoutExpired:
        process.kill()
        process.wait()
