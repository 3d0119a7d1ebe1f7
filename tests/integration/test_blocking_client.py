"""The blocking client among threads, callbacks, the garbage collector, forks and the end of the program: it never hangs."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rangelog
import rangelog.sync
from rangelog_cli.local.processes import Cluster
from tests.support.threads import WAIT_S, within

pytestmark = [pytest.mark.integration, pytest.mark.alone]


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[rangelog.sync.Client]:
    """A blocking client that is closed in the end."""
    connected = rangelog.sync.connect(shared_cluster.connect_string)
    yield connected
    within(connected.close)


def _stream(client: rangelog.sync.Client, name: str, count: int) -> str:
    def make() -> None:
        client.create_stream(name)
        with client.writer(name) as writer:
            writer.append_batch([b"%d" % n for n in range(count)])

    within(make)
    return name


def test_close_during_follow(client: rangelog.sync.Client) -> None:
    """A thread that follows a stream gets an error when another thread closes the client."""
    name = _stream(client, "followed", 3)
    seen, three = [], threading.Event()

    def follow() -> None:
        for record in client.reader(name, follow=True):
            seen.append(record.value)
            if len(seen) >= 3:
                three.set()

    followers = [concurrent.futures.Future[Any]() for _ in range(2)]

    def main(future: concurrent.futures.Future[Any]) -> None:
        try:
            follow()
        except BaseException as error:
            future.set_result(error)

    for future in followers:
        threading.Thread(target=main, args=(future,), daemon=True).start()
    assert three.wait(WAIT_S)
    within(client.close)
    for future in followers:
        error = future.result(WAIT_S)
        assert isinstance(error, rangelog.Unavailable) and not error.outcome_unknown
    with pytest.raises(rangelog.Unavailable, match="closed"):
        within(lambda: client.end_offset(name))
    within(client.close)


def test_blocking_calls_in_a_callback(client: rangelog.sync.Client) -> None:
    """In a callback of submit's future every blocking call is refused, and the client goes on."""
    name = _stream(client, "callbacks", 1)
    told: concurrent.futures.Future[list[str]] = concurrent.futures.Future()

    def append_from_a_callback() -> int:
        with client.writer(name) as writer:
            calls: tuple[Callable[[], Any], ...] = (
                lambda: writer.append(b"x"),
                lambda: writer.submit(b"x"),
                lambda: next(client.reader(name)),
                lambda: client.end_offset(name),
                client.close,
            )

            caller = threading.get_ident()
            too_early: list[object] = []

            def callback(future: object) -> None:
                if threading.get_ident() == caller:
                    too_early.append(future)  # acked before the callback was added: it runs where it is added
                    return
                refused = []
                for call in calls:
                    try:
                        call()
                    except rangelog.InvalidArgument as error:
                        refused.append(error.message)
                told.set_result(refused)

            for submitted in range(1, 101):
                writer.submit(b"1").add_done_callback(callback)
                if len(too_early) < submitted:
                    break
            assert len(told.result(WAIT_S)) == len(calls)
            return writer.append(b"2").offset - len(too_early)

    assert within(append_from_a_callback) == 2
    assert all("own thread" in each for each in told.result())


def test_a_reader_that_the_collector_ends(client: rangelog.sync.Client) -> None:
    """A reader in a cycle that is collected on the client's own thread is ended without a wait; the client goes on."""
    name = _stream(client, "collected", 5)

    def abandon() -> None:
        reader = client.reader(name, follow=True)
        next(reader)
        cycle: list[Any] = [reader]
        cycle.append(cycle)

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        within(abandon)
        within(lambda: client.run(collect()))
    finally:
        gc.enable()
    assert within(lambda: client.end_offset(name)) == 5


def test_close_under_appends(client: rangelog.sync.Client) -> None:
    """Threads that append while others close the client all end, each append with an ack or an error; close may be repeated."""
    name = _stream(client, "busy", 1)
    writer = client.writer(name)
    within(writer.__enter__)
    started = threading.Barrier(7)
    acked: list[int] = []

    def append() -> str:
        futures = []
        started.wait(WAIT_S)
        try:
            while True:
                futures.append(writer.submit(b"x" * 1000))
                acked.append(writer.append(b"y").offset)
        except rangelog.RangelogError as error:
            for future in futures:
                future.exception(WAIT_S)
            return type(error).__name__

    def close() -> str:
        started.wait(WAIT_S)
        while len(acked) < 50:
            threading.Event().wait(0.001)
        client.close()
        client.close()
        return "closed"

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        ends = [pool.submit(work) for work in [append] * 4 + [close] * 3]
        names = {each.result(WAIT_S) for each in ends}
    assert "closed" in names and names <= {"closed", "ClientClosed", "WriterClosed"}
    assert len(set(acked)) == len(acked) >= 50
    within(writer.close)


def test_submit_from_several_threads(client: rangelog.sync.Client) -> None:
    """Every record that was submitted, from whichever thread, is at the offset that its future says; none can be cancelled."""
    name = _stream(client, "many", 0)

    def submit_all() -> dict[int, bytes]:
        with client.writer(name) as writer, concurrent.futures.ThreadPoolExecutor(4) as pool:

            def some(thread: int) -> list[tuple[bytes, concurrent.futures.Future[rangelog.Ack]]]:
                return [(value, writer.submit(value)) for value in (b"%d-%d" % (thread, n) for n in range(100))]

            submitted = [each for part in pool.map(some, range(4)) for each in part]
            assert not any(future.cancel() for _, future in submitted)
            return {future.result(WAIT_S).offset: value for value, future in submitted}

    expected = within(submit_all)
    assert within(lambda: {record.offset: record.value for record in client.reader(name)}) == expected
    assert len(expected) == 400


_HEAD = """
import os, signal, sys, threading, time
import rangelog, rangelog.sync
signal.alarm(40)
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
client = rangelog.sync.connect(sys.argv[1])
"""

_FORKED = (
    _HEAD
    + """
writer = client.writer("forked").__enter__()
writer.append(b"1")
reader = client.reader("forked", follow=True)
next(reader)

def told(call):
    try:
        call()
        return "nothing"
    except rangelog.RangelogError as error:
        return type(error).__name__

calls = {
    "append": lambda: writer.append(b"x"),
    "next": lambda: next(reader),
    "list": lambda: list(client.list_streams()),
    "asynchronous": lambda: rangelog.sync.connect(sys.argv[1]).describe_stream("forked"),
    "close": client.close,
}
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    try:
        with client:
            print({name: told(call) for name, call in calls.items()}, flush=True)
            sys.exit(3)
    finally:
        del reader
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
print(writer.append(b"2").offset, next(reader).value)
client.close()
"""
)


def test_a_forked_child(client: rangelog.sync.Client, shared_cluster: Cluster) -> None:
    """In a child that was forked after connecting every call is refused at once, a new client's as well; the parent goes on."""
    within(lambda: client.create_stream("forked"))
    run = _program(_FORKED, shared_cluster)
    refused = dict.fromkeys(("append", "next", "list", "asynchronous"), "InvalidArgument") | {"close": "nothing"}
    assert run.stdout.splitlines() == [str(refused), "1 b'2'"], run.stderr
    assert run.returncode == 0 and "Traceback" not in run.stderr


_LEAVING = (
    _HEAD.replace("client = ", "held = ")
    + """
import gc

def leave_at_once(client):
    os._exit(0)

def leave(client):
    sys.exit(0)

def leave_in_with(client):
    with client:
        sys.exit(0)

def close_and_forget(client):
    client.close()
    del client
    gc.collect()
    os._exit(0)

def forget(client):
    rangelog._sync_bases._open_clients.clear()
    del client
    gc.collect()
    os._exit(0)

def forget_in_a_cycle(client):
    cycle = [client]
    cycle.append(cycle)
    close = client.close
    close()
    del client, cycle, close
    gc.collect()
    sys.exit(0)

def main(way):
    global held
    client, held = held, None
    client.end_offset("left-by-children")
    ways = [way]
    del way
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            boxes = [client]
            del client
            ways.pop()(boxes.pop())
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], client.end_offset("left-by-children"))
    client.close()

main(globals()[sys.argv[2]])
"""
)


@pytest.mark.parametrize(
    "way", ["leave_at_once", "leave", "leave_in_with", "close_and_forget", "forget", "forget_in_a_cycle"]
)
def test_forked_children_end(client: rangelog.sync.Client, shared_cluster: Cluster, way: str) -> None:
    """Forked children that leave, or drop their last reference to the inherited client, end with code 0; the parent goes on."""
    if not any(stream.name == "left-by-children" for stream in within(lambda: list(client.list_streams()))):
        _stream(client, "left-by-children", 2)
    run = _program(_LEAVING, shared_cluster, way)
    assert run.stdout == "[0, 0, 0] 2\n", run.stderr
    assert (run.returncode, run.stderr) == (0, "")


_ENDS = {
    "open": """
client.create_stream("left-open")
client.writer("left-open").__enter__().submit(b"x")
reader = client.reader("left-open", follow=True)
""",
    "atexit": """
import atexit
atexit.register(client.close)
client.create_stream("left-to-atexit")
client.writer("left-to-atexit").__enter__().append(b"x")
""",
    "follower": """
client.create_stream("left-following")
with client.writer("left-following") as writer:
    writer.append(b"x")
seen = threading.Event()
def follow():
    try:
        for record in client.reader("left-following", follow=True):
            seen.set()
    except rangelog.Unavailable:
        pass
threading.Thread(target=follow, daemon=True).start()
seen.wait(20)
""",
    "interrupted": """
client.create_stream("interrupted")
with client.writer("interrupted") as writer:
    writer.append(b"x")
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for record in client.reader("interrupted", follow=True):
        pass
except KeyboardInterrupt:
    assert client.end_offset("interrupted") == 1
""",
}


@pytest.mark.parametrize("name", _ENDS)
def test_the_program_ends(shared_cluster: Cluster, name: str) -> None:
    """A program that ends without close, by atexit, with a follower under way, or after Ctrl-C ends at once and quietly."""
    run = _program(_HEAD + _ENDS[name] + "print('end')", shared_cluster)
    assert (run.returncode, run.stdout, run.stderr) == (0, "end\n", "")


def _program(text: str, cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GRPC_VERBOSITY": "NONE"}  # it has a line of its own about forks
    return subprocess.run(
        [sys.executable, "-c", text, cluster.connect_string, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
