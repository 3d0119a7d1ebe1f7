"""Members of test clusters, and pdctl, begin by a fork of a process that has loaded their modules: a fifth of the CPU.

What holds:
- A forked member is what `python -m rangelog_cli pd|range-server|broker` is: a session and process group of its own, its log,
  its standard input, its environment, its lifeline, its exit code. `Popen`'s methods that the supervisor uses are there.
- A forked pdctl is what `python -m pdctl` is: `run_pdctl` is as `subprocess.run`, and a shell finds one by `pdctl_on_path`.
- So is a forked `rangelog`, which ends by itself: `run_rangelog`; and a script, `python FILE`: `run_script`.
- A forked `rangelog local` has members that are forked as well.
- Whatever else is started (another command, a prefix such as nsenter, a setting of the interpreter or of gRPC) has a process
  from scratch: one test of `tests/integration/test_local.py` starts `rangelog local` as users do.
- The process that forks has one thread and has made no connection; it ends when the session does (`stop`).
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

from rangelog_cli.local import process as supervising
from rangelog_cli.local.lifeline import LIFELINE_ENV, lifeline_fd

ROLES = ("pd", "range-server", "broker", "local")
LOADED = ["tests.support.forked_modules"]
AT_START = ("PYTHON", "GRPC_", "LD_", "MALLOC_", "RANGELOG_PURE", "RANGELOG_DEBUG")
"""Variables that count while an interpreter or its modules begin: a fork comes too late for them."""
_LOCK = threading.Lock()
"""The library reads an exit code once, in `start` of any process too: two threads at once would lose it."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(LOADED)


def _become(fds: Sequence[Any], env: Mapping[str, str], arguments: list[str]) -> None:
    """Take the three standard streams, the environment and the arguments of a process from scratch."""
    numbers = [each.detach() for each in fds]
    for target, number in enumerate(numbers):
        os.dup2(number, target)
    for number in set(numbers):
        os.close(number)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = os.fdopen(0)
    sys.argv = arguments


def _member(arguments: list[str], env: dict[str, str], stdin: Any, log: Any, lifeline: Any) -> None:
    os.setsid()
    _become([stdin, log, log], env | {LIFELINE_ENV: str(lifeline.detach())}, ["rangelog", *arguments])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    from rangelog_cli.entry import main

    sys.exit(main())


def _local(arguments: list[str], env: dict[str, str], stdin: Any, log: Any, lifeline: Any, address: str) -> None:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it has children
    server = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address, server.ensure_running = address, lambda: None  # the one that has forked this process
    supervising.spawn = spawn
    _member(arguments, env, stdin, log, lifeline)


def _pdctl(arguments: list[str], env: dict[str, str], directory: str, fds: list[Any]) -> None:
    os.chdir(directory)
    _become(fds, env, ["pdctl", *arguments])
    from pdctl.entry import main

    sys.exit(main())


def _rangelog(arguments: list[str], env: dict[str, str], directory: str, fds: list[Any]) -> None:
    os.chdir(directory)
    _become(fds, env, ["rangelog", *arguments])
    from rangelog_cli.entry import main

    sys.exit(main())


def _script(arguments: list[str], env: dict[str, str], directory: str, fds: list[Any]) -> None:
    os.chdir(directory)
    _become(fds, env, arguments)
    sys.path.insert(0, os.path.dirname(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


class Forked:
    """A process as `subprocess.Popen` would show it."""

    def __init__(self, begins: Callable[..., None], arguments: Sequence[str], *others: Any) -> None:
        self.args = list(arguments)
        self._process = _CONTEXT.Process(target=begins, args=(self.args, *others), daemon=True)
        with _LOCK:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, once it has ended."""
        with _LOCK:
            return self._process.exitcode

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable once it has ended."""
        return self._process.sentinel

    def poll(self) -> int | None:
        """Return the same."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired."""
        wait([self._process.sentinel], timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code


class ForkedMember(Forked):
    """A member of a cluster."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: IO[bytes], lifeline: int) -> None:
        read_end, write_end = os.pipe()
        self.stdin = os.fdopen(write_end, "wb", buffering=0)
        server = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
        server.ensure_running()
        begins, more = (_local, (server._forkserver_address,)) if arguments[0] == "local" else (_member, ())
        super().__init__(begins, arguments, dict(env), _Fd(read_end), _Fd(log.fileno()), _Fd(lifeline), *more)
        os.close(read_end)


def run_pdctl(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    given: bytes = b"",
    directory: str | os.PathLike[str] = "",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run pdctl to its end in a directory (the current one), its output captured. Raises subprocess.TimeoutExpired."""
    ran = _run(_pdctl, arguments, env, given, directory, timeout)
    ran.args.insert(0, "pdctl")
    return ran


def run_rangelog(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    given: bytes = b"",
    directory: str | os.PathLike[str] = "",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """As `run_pdctl`, for `rangelog`."""
    return _run(_rangelog, arguments, env, given, directory, timeout)


def run_script(script: Path, arguments: Sequence[str], *, timeout: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    """Run a Python file to its end, as `run_pdctl` does."""
    return _run(_script, [str(script.resolve()), *arguments], os.environ, b"", "", timeout)


def _run(
    begins: Callable[..., None],
    arguments: Sequence[str],
    env: Mapping[str, str],
    given: bytes,
    directory: str | os.PathLike[str],
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    with ExitStack() as closed:
        files = [closed.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(given)
        for each in files:
            each.seek(0)
        process = Forked(
            begins, arguments, dict(env), os.path.abspath(directory), [_Fd(each.fileno()) for each in files]
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for each in files:  # the process moved the positions, which are its and ours
            each.seek(0)
        return subprocess.CompletedProcess(process.args, code, files[1].read(), files[2].read())


_ON_PATH = """#!{python} -IS
import json, os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect({address!r})
asked = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode() + b"\\n"
door.sendall(asked[socket.send_fds(door, [asked], [0, 1, 2]):])
sys.exit(int(door.recv(8)))
"""


@contextmanager
def pdctl_on_path() -> Iterator[str]:
    """Yield a directory for the PATH of a shell, until the block ends: `pdctl` in it begins by a fork."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/door")
        door.listen()
        program = Path(folder) / "pdctl"
        program.write_text(_ON_PATH.format(python=sys.executable, address=f"{folder}/door"))
        program.chmod(0o700)
        threading.Thread(target=_serve, args=(door,), daemon=True).start()
        yield folder
        door.shutdown(socket.SHUT_RDWR)


def _serve(door: socket.socket) -> None:
    with suppress(OSError):  # the door is shut
        while True:
            threading.Thread(target=_answer, args=(door.accept()[0],), daemon=True).start()


def _answer(caller: socket.socket) -> None:
    with caller:
        asked, fds, *_ = socket.recv_fds(caller, 1 << 16, 3)
        while not asked.endswith(b"\n"):
            asked += caller.recv(1 << 16)
        arguments, env, directory = json.loads(asked)
        process = Forked(_pdctl, arguments, env, directory, [_Fd(each) for each in fds])
        for each in fds:
            os.close(each)
        with suppress(BrokenPipeError):
            caller.sendall(b"%d" % (process.wait() % 256))


class _Fd:
    """A file descriptor on its way to the member."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        return _Passed, (DupFd(self._number),)


class _Passed:
    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def detach(self) -> int:
        """Its number here."""
        number: int = self._handle.detach()
        return number


def spawn(command: Sequence[str], **options: Any) -> Any:
    """As `subprocess.Popen`, by a fork where the command is a member."""
    env = options["env"]
    changed = [name for name, value in env.items() if os.environ.get(name) != value and name != "PYTHONUNBUFFERED"]
    is_member = list(command[:3]) == [sys.executable, "-m", "rangelog_cli"] and command[3] in ROLES
    if not is_member or any(name.startswith(AT_START) for name in changed):
        return subprocess.Popen(command, **options)
    (lifeline,) = options.get("pass_fds") or (lifeline_fd(),)
    return ForkedMember(command[3:], env, options.get("stdout") or options["stderr"], lifeline)


def load_also(module: str) -> bool:
    """Have the process that forks load one more module; return whether it is still to begin, so that it will."""
    if multiprocessing.forkserver._forkserver._forkserver_pid is not None:  # type: ignore[attr-defined]
        return False
    _CONTEXT.set_forkserver_preload([*LOADED, module])
    return True


def stop() -> None:
    """End the process that forks, if it was needed."""
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
