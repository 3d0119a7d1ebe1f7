"""Contexts: clusters by name, in one file that is never left half, and those of stopped local clusters named at once."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pdctl.main import main
from pdctl.stopped import is_stopped, supervisor_lives
from rangelog import TlsConfig
from rangelog.context import Context, changed_contexts, context_path, read_context, read_contexts, write_context
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_proto.v1 import pd_pb2


def run(*arguments: str) -> Result:
    """pdctl without --pd."""
    return CliRunner().invoke(main, arguments, prog_name="pdctl")


def test_the_whole_life_of_a_context(pd: Any, tmp_path: Path) -> None:
    """Added, listed, used, shown, replaced only when asked, deleted."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    assert "there are no contexts" in run("context", "list").stderr
    assert "is in use" in run("context", "add", "one", "--pd", "a:1, b:2").stdout
    assert "pdctl context use two" in run("context", "add", "two", "--pd", "c:3").stdout
    listed = json.loads(run("context", "ls", "-o", "json").stdout)
    assert [(each["name"], each["in_use"], each["pd"]) for each in listed] == [
        ("one", True, ["a:1", "b:2"]), ("two", False, ["c:3"]),
    ]  # fmt: skip
    again = run("context", "add", "two", "--pd", "x:9")
    assert again.exit_code == 5 and "--replace" in again.stderr and read_contexts().by_name["two"].pd == ("c:3",)
    assert run("context", "add", "two", "--pd", "d:4", "--replace").exit_code == 0
    run("server", "list")
    run("server", "list", "--context", "two")
    assert "two is in use: d:4" in run("context", "use", "two").stdout
    run("server", "list")
    assert [endpoints for endpoints, _, _ in pd.opened] == [["a:1", "b:2"], ["d:4"], ["d:4"]]
    assert json.loads(run("context", "show", "-o", "json").stdout)["name"] == "two"
    assert "none is in use now" in run("context", "delete", "two").stdout
    assert run("server", "list").exit_code == 2 and run("context", "show").exit_code == 2
    assert json.loads(run("context", "list", "-o", "json").stdout)[0]["name"] == "one"


def test_files_of_tls_belong_to_the_context(pd: Any, tmp_path: Path) -> None:
    """All three or none, and they exist; they are kept by their whole paths, and used with that context alone."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    paths = [str(tmp_path / name) for name in ("ca.pem", "c.pem", "k.pem")]
    for path in paths:
        Path(path).touch()
    ca, cert, key = paths
    assert "all three" in run("context", "add", "x", "--pd", "a:1", "--ca", ca).stderr
    assert (
        "/nowhere" in run("context", "add", "x", "--pd", "a:1", "--ca", "/nowhere", "--cert", cert, "--key", key).stderr
    )
    assert read_contexts().by_name == {}
    run("context", "add", "x", "--pd", "a:1", "--ca", os.path.relpath(ca), "--cert", cert, "--key", key)
    run("context", "add", "y", "--pd", "b:2")
    run("server", "list")
    run("server", "list", "--context", "y")
    assert [tls for _, _, tls in pd.opened] == [TlsConfig(*paths), None]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("context", "use", "gone"), "there are: known"),
        (("context", "show", "gone"), "there are: known"),
        (("context", "delete", "gone"), "there are: known"),
        (("server", "list", "--context", "gone"), "pdctl context list"),
        (("context", "add", "a/b", "--pd", "a:1"), "no name of a context"),
        (("context", "add", "-", "--pd", "a:1"), "no name of a context"),
        (("context", "add", "x", "--pd", "nohost"), "host:port"),
        (("context", "add", "x", "--pd", ","), "host:port"),
        (("context", "add", "x"), "--pd"),
    ],
)
def test_bad_contexts_are_one_line_and_change_nothing(pd: Any, arguments: tuple[str, ...], part: str) -> None:
    """The line says what to do; the file stays as it was."""
    write_context("known", ["c:3"])
    before = context_path().read_bytes()
    result = run(*arguments)
    assert result.exit_code == 2 and part in result.stderr and result.stderr.count("\n") == 1
    assert context_path().read_bytes() == before and pd.opened == []


def test_the_file_of_an_earlier_program_is_read_and_an_earlier_program_reads_ours(pd: Any) -> None:
    """A file with one cluster is one context in use; of ours the fields beside `contexts` are those of the one in use."""
    path = write_context("x", ["c:3"])
    path.write_text('{"name": "local", "pd": ["c:3"]}')
    assert read_context() == Context("local", ("c:3",))
    run("context", "add", "prod", "--pd", "p:1", "--use")
    parsed = json.loads(path.read_text())
    assert (parsed["name"], parsed["pd"]) == ("prod", ["p:1"]) and set(parsed["contexts"]) == {"local", "prod"}


def test_two_programs_lose_none_of_each_others_contexts(pd: Any) -> None:
    """Changes take turns."""

    def add(number: int) -> None:
        with changed_contexts() as contexts:
            contexts.by_name[f"c{number}"] = Context(f"c{number}", ("a:1",))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(read_contexts().by_name) == {f"c{number}" for number in range(8)}


def test_a_file_that_gets_too_large_is_not_written(pd: Any) -> None:
    """It could not be read again."""
    write_context("known", ["c:3"])
    with pytest.raises(InvalidArgument, match="context delete"), changed_contexts() as contexts:
        contexts.by_name["huge"] = Context("huge", tuple(f"host{number}:1" for number in range(9_000)))
    assert set(read_contexts().by_name) == {"known"}


@pytest.mark.parametrize("damaged", ['{"contexts": 1}', '{"contexts": {"a": {}}}', '{"contexts": {"a": {"pd": [1]}}}'])
def test_damaged_contexts(pd: Any, damaged: str) -> None:
    """They are refused as a whole, by the file's name."""
    path = write_context("x", ["c:3"])
    path.write_text(damaged)
    with pytest.raises(ConfigInvalid, match=r"is not a context file|names no placement drivers"):
        read_context()


def _local(data_dir: Path, name: str = "local") -> Context:
    with changed_contexts() as contexts:
        contexts.by_name[name] = Context(name, ("127.0.0.1:1",), None, str(data_dir))
        contexts.used = name
        return contexts.by_name[name]


def test_a_stopped_local_cluster_is_named_at_once(pd: Any, tmp_path: Path) -> None:
    """Nobody is asked: the message has the command that starts it. One whose directory is gone is said to be gone."""
    (tmp_path / "data").mkdir()
    _local(tmp_path / "data")
    result = run("stream", "list")
    assert result.exit_code == 4 and pd.opened == []
    assert f"start it with `rangelog local --data-dir {tmp_path / 'data'}`" in result.stderr
    assert '"state": "stopped"' in run("context", "list", "-o", "json").stdout
    _local(tmp_path / "gone", "other")
    assert "pdctl context delete other" in run("stream", "list").stderr


def test_what_counts_as_stopped(pd: Any, tmp_path: Path) -> None:
    """Not while its process lives (it may be starting), nor while anything listens; never a cluster that is not local."""
    local = _local(tmp_path)
    assert is_stopped(local, lambda _: False) and not is_stopped(local, lambda _: True)
    (tmp_path / "LOCK").write_text(f"{os.getpid()}\n")
    assert supervisor_lives(tmp_path) and not is_stopped(local, lambda _: False)
    for content in ("", "0", "-1", "x", "9" * 30):
        (tmp_path / "LOCK").write_text(content)
        assert is_stopped(local, lambda _: False), content
    assert not is_stopped(Context("prod", ("127.0.0.1:1",)), lambda _: False)
