"""The supervisor's single process, with tiny children, and who gets restarted when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rangelog_cli.local.command import banner, left_out_line
from rangelog_cli.local.keeper import Keeper, describe_exit
from rangelog_cli.local.processes import Cluster, Process
from rangelog_core.errors import InternalError, RequestTimeout, Unavailable
from rangelog_core.exit_codes import EXIT_DIRECTORY_GIVEN_UP
from rangelog_tier.opening import store_location
from tests.support.waiting import eventually

READY = "import json,os,sys,time; open(sys.argv[1],'w').write(json.dumps({'pid': os.getpid()})); time.sleep(60)"


def child(tmp_path: Path, code: str, *arguments: str, ready: bool = False) -> Process:
    """A Python one-liner as a supervised process."""
    ready_file = tmp_path / "endpoint.json" if ready else None
    return Process("child", ["-c", code, *arguments], log_path=tmp_path / "child.log", ready_file=ready_file)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it went between opening and reading
        return False


def test_ready_when_the_endpoint_file_names_its_pid(tmp_path: Path) -> None:
    """A stale endpoint file of an earlier process does not count."""
    (tmp_path / "endpoint.json").write_text('{"pid": 1}')
    process = child(tmp_path, READY, str(tmp_path / "endpoint.json"), ready=True)
    process.start()
    try:
        process.wait_ready(20)
        assert process.endpoint() == {"pid": process.pid}
        with pytest.raises(InternalError):
            process.start()
    finally:
        process.kill()
    assert not process.running
    assert process.returncode == -signal.SIGKILL


def test_a_prefix_leads_to_the_same_process(tmp_path: Path) -> None:
    """What executes the child in its own place changes neither its pid nor when it is ready."""
    path = tmp_path / "endpoint.json"
    process = Process(
        "child",
        ["-c", READY, str(path)],
        log_path=tmp_path / "child.log",
        ready_file=path,
        prefix=("env", "PREFIXED=yes"),
    )
    process.start()
    try:
        process.wait_ready(20)
        assert b"PREFIXED=yes" in Path(f"/proc/{process.pid}/environ").read_bytes()
    finally:
        process.kill()


def test_death_at_start_is_reported_with_the_last_words(tmp_path: Path) -> None:
    """The line that says what to do is preferred to what follows it."""
    code = "import sys; print('noise'); sys.exit('rangelog: port 1 is busy: take another')"
    process = child(tmp_path, code, ready=True)
    process.start()
    with pytest.raises(Unavailable, match=r"child ended with exit code 1: port 1 is busy: take another"):
        process.wait_ready(20)


def test_silence_at_start_has_a_deadline(tmp_path: Path) -> None:
    """A child that never listens is not waited for for ever."""
    process = child(tmp_path, "import time; time.sleep(60)", ready=True)
    process.start()
    try:
        with pytest.raises(RequestTimeout, match=r"child\.log"):
            process.wait_ready(0.2)
    finally:
        process.kill()


def test_stop_is_asked_for_then_forced(tmp_path: Path) -> None:
    """A child that ignores SIGTERM is killed after the deadline."""
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); open(__import__('sys').argv[1],'w'); time.sleep(60)"
    process = child(tmp_path, code, str(tmp_path / "up"))
    process.start()
    eventually((tmp_path / "up").exists, "the child is not up", 20)
    process.request_stop()
    process.finish(time.monotonic() + 0.2)
    assert process.returncode == -signal.SIGKILL


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """After kill -9 of the supervisor neither the child nor the grandchild is left."""
    grandchild = f"import time; open({str(tmp_path / 'g')!r},'w').write(str(__import__('os').getpid())); time.sleep(60)"
    code = (
        "import subprocess,sys,time; from rangelog_cli.local.lifeline import follow_parent; follow_parent();"
        f"subprocess.Popen([sys.executable,'-c',{grandchild!r}]);"
        f"open({str(tmp_path / 'c')!r},'w').write(str(__import__('os').getpid())); time.sleep(60)"
    )
    supervisor = (
        "import time; from pathlib import Path; from rangelog_cli.local.processes import Process;"
        f"Process('c', ['-c', {code!r}], log_path=Path({str(tmp_path / 'log')!r})).start(); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", supervisor])
    try:
        files = [tmp_path / "c", tmp_path / "g"]
        eventually(lambda: all(file.exists() and file.read_text() for file in files), "the children are not up", 20)
        pids = [int(file.read_text()) for file in files]
        assert all(alive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
    eventually(lambda: not any(alive(pid) for pid in pids), f"{pids} are left", 10)


def test_directory_belongs_to_one_supervisor(tmp_path: Path) -> None:
    """A second cluster in one directory is refused with the first one's pid; letting go frees it."""
    first = Cluster.open(tmp_path / "data")
    with pytest.raises(Unavailable, match=rf"in use by another cluster \(pid {os.getpid()}\)"):
        Cluster.open(tmp_path / "data")
    first.stop()
    second = Cluster.open(tmp_path / "data")
    assert second.plan == first.plan
    second.stop()


@pytest.mark.parametrize(
    ("asked", "said"), [({"pds": 1}, "holds 3 placement"), ({"tier_url": "file:///x"}, "its tier")]
)
def test_another_cluster_than_the_directory_holds_is_refused(
    tmp_path: Path, asked: dict[str, int | str], said: str
) -> None:
    """Member count and tier are fixed when the directory is made."""
    Cluster.open(tmp_path).stop()
    with pytest.raises(Unavailable, match=said):
        Cluster.open(tmp_path, **asked)  # type: ignore[arg-type]
    Cluster.open(tmp_path).stop()


class FakeProcess:
    """Just enough of Process for the keeper."""

    name = "rs1"
    where = " (log: rs1.log)"
    returncode = -9

    def __init__(self) -> None:
        self.running = True
        self.starts = 0

    def last_words(self) -> str:
        """Of its log."""
        return "the disk is gone"

    def start(self) -> None:
        """Count."""
        self.starts += 1
        self.running = True


def test_crashed_member_comes_back_with_growing_pauses() -> None:
    """Each crash soon after a start doubles the pause; a long run forgets the past; everything is said once."""
    said: list[str] = []
    process = FakeProcess()
    keeper = Keeper({"rs1": process}, 0.0, said.append)  # type: ignore[dict-item]
    now_s, pauses = 0.0, []
    for _ in range(4):
        process.running = False
        keeper.check(now_s)
        down_s = now_s
        while not process.running:
            now_s += 0.125
            keeper.check(now_s)
        pauses.append(now_s - down_s)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert len(said) == 4
    assert "rs1 was ended by SIGKILL; starting it again in 0.5 s (log: rs1.log)" in said[0]
    process.running = False
    keeper.check(now_s + 100)
    assert "in 0.5 s" in said[-1]
    process.running, process.returncode = True, 1
    keeper.check(now_s + 200)
    process.running = False
    keeper.check(now_s + 300)
    assert said[-1].startswith("rs1 ended with exit code 1: the disk is gone; starting it again in 0.5 s")


def test_who_is_left_out_is_not_started_again() -> None:
    """Nothing is said of its end either."""
    process, said = FakeProcess(), []  # type: tuple[FakeProcess, list[str]]
    keeper = Keeper({"rs1": process}, 0.0, said.append, {"rs1"})  # type: ignore[dict-item]
    process.running = False
    for now_s in range(100):
        keeper.check(float(now_s))
    assert process.starts == 0 and said == []


def test_a_removed_server_does_not_keep_the_others_from_starting(tmp_path: Path) -> None:
    """It ends with an exit code of its own, and the terminal says what to do."""
    cluster = Cluster.open(tmp_path / "data", pds=1, range_servers=2)
    endpoint = tmp_path / "endpoint.json"
    refused = f"raise SystemExit({EXIT_DIRECTORY_GIVEN_UP})"
    cluster.placement_drivers = {}
    cluster.range_servers = {
        "rs1": Process("rs1", ["-c", READY, str(endpoint)], log_path=tmp_path / "rs1.log", ready_file=endpoint),
        "rs2": Process("rs2", ["-c", refused], log_path=tmp_path / "rs2.log", ready_file=tmp_path / "never"),
    }
    try:
        cluster.start(20)
        assert cluster.left_out == {"rs2"} and cluster.leave_out_removed() == []
        assert cluster.range_servers["rs1"].running
        said = left_out_line(cluster, "rs2")
        assert (
            said.startswith("rs2 was removed from the cluster: it is left out; delete")
            and "data/rs2 to have it" in said
        )
        assert "1 range server," in banner(cluster) and "rs2" not in banner(cluster)
    finally:
        cluster.kill_all()
        cluster.stop()


def test_exit_in_words() -> None:
    """Signals are named."""
    assert describe_exit(-15) == "was ended by SIGTERM"
    assert describe_exit(3) == "ended with exit code 3"


@pytest.mark.parametrize("name", ["plain", "100%41", "a#b", "what?", "two words", "é"])
def test_the_tier_is_in_the_directory_whatever_its_name(tmp_path: Path, name: str) -> None:
    """Its URL has the directory's name quoted: what reads it finds that directory, and not another one."""
    cluster = Cluster.open(tmp_path / name, pds=1, range_servers=1)
    cluster.stop()
    assert store_location(cluster.plan.tier_url) == str(tmp_path / name / "tier")


def test_members_start_with_a_tier_whose_name_is_quoted(tmp_path: Path) -> None:
    """The URL passes through arguments and settings of both kinds of members."""
    name = "100%41 a#b what? é"
    with Cluster.open(tmp_path / name, pds=1, range_servers=1) as cluster:
        assert store_location(cluster.plan.tier_url) == str(tmp_path / name / "tier")
