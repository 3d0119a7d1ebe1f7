"""The context of a local cluster: one of its own, whatever others there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rangelog.context import Context, changed_contexts, read_contexts, write_context
from rangelog_cli.local.background import Running, described, start, write_running
from rangelog_cli.local.naming import choose_name, known_as, write_local_context
from rangelog_cli.local.plan import make_plan, write_plan
from rangelog_core.errors import InvalidArgument, PreconditionFailed, Unavailable


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters' directories, and no context yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()


def _start(directory: Path, wanted: str | None = None) -> tuple[str, bool]:
    name = choose_name(directory, wanted, [f"{directory.name}:1"])
    return name, write_local_context(directory, name, [f"{directory.name}:1"], None)


def test_the_first_is_local_and_keeps_its_name(tmp_path: Path) -> None:
    """A second cluster gets another name, and each the same at its next start."""
    assert _start(tmp_path / "one") == ("local", True)
    assert _start(tmp_path / "two") == ("local-2", True)  # the first does not run
    assert _start(tmp_path / "one")[0] == "local" and _start(tmp_path / "two")[0] == "local-2"
    assert read_contexts().by_name["local"].pd == ("one:1",)


def test_a_running_cluster_stays_in_use(tmp_path: Path) -> None:
    """So does one that is not local."""
    _start(tmp_path / "one")
    (tmp_path / "one" / "LOCK").write_text(f"{os.getpid()}\n")
    assert _start(tmp_path / "two") == ("local-2", False)
    with changed_contexts() as contexts:
        del contexts.by_name["local"]
    write_context("prod", ["p:1"])
    assert _start(tmp_path / "two") == ("local-2", False) and read_contexts().used == "prod"


def test_a_wanted_name_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Nothing is written over; a name that is none is refused too."""
    write_context("prod", ["p:1"])
    with pytest.raises(PreconditionFailed, match="of another cluster"):
        _start(tmp_path / "one", "prod")
    with pytest.raises(InvalidArgument):
        _start(tmp_path / "one", "a/b")
    assert set(read_contexts().by_name) == {"prod"} and read_contexts().by_name["prod"].pd == ("p:1",)
    assert _start(tmp_path / "one", "mine") == ("mine", False)
    assert _start(tmp_path / "one") == ("mine", False)


def test_a_context_from_before_contexts_is_anothers(tmp_path: Path) -> None:
    """It has no directory, so nobody knows whose it is."""
    write_context("local", ["p:1"])
    assert _start(tmp_path / "one") == ("local-2", False)


def test_the_name_of_a_cluster_that_is_gone_is_free(tmp_path: Path) -> None:
    """Its directory was removed, and its data with it."""
    _start(tmp_path / "one")
    (tmp_path / "one").rmdir()
    assert _start(tmp_path / "two") == ("local", True)


def test_a_name_that_is_taken_meanwhile(tmp_path: Path) -> None:
    """Between the choice and the start another cluster has taken it."""
    name = choose_name(tmp_path / "one", None)
    _start(tmp_path / "two")
    with pytest.raises(PreconditionFailed):
        write_local_context(tmp_path / "one", name, ["one:1"], None)


def test_a_context_made_by_hand_with_the_same_addresses_is_adopted(tmp_path: Path) -> None:
    """It gets the directory, and stays in use; one with a token is somebody's for another use."""
    write_context("mine", ["one:1"])
    assert known_as(tmp_path / "one", ["one:1"]) == "mine" and known_as(tmp_path / "two", ["two:1"]) == ""
    assert _start(tmp_path / "one") == ("mine", True)
    assert set(read_contexts().by_name) == {"mine"}
    assert read_contexts().by_name["mine"].data_dir == str(tmp_path / "one")
    write_context("hers", ["two:1"])
    assert _start(tmp_path / "two", "hers") == ("hers", True)
    with changed_contexts() as contexts:
        contexts.by_name["hers"] = Context("hers", ("two:1",), token_file="/token")
    assert _start(tmp_path / "two")[0] == "local"


def test_a_deleted_context_of_a_running_cluster_is_written_again(tmp_path: Path) -> None:
    """By `rangelog local --detach`, which says so, as does the status before; not where none is wanted."""
    write_plan(tmp_path, make_plan(pds=1, range_servers=1, tier_url="file:///t", base_port=7000))
    running = Running.this_process(in_background=True, context="local")
    write_running(tmp_path, running)
    assert "pdctl context  none, local was deleted: `rangelog local --detach` writes" in described(tmp_path, running)
    with pytest.raises(Unavailable, match=r"see `rangelog local status`$"):
        start(tmp_path, {"context": None})
    assert read_contexts().by_name == {}
    with pytest.raises(Unavailable, match=r"runs already .* is written again: local, in use"):
        start(tmp_path, {"context": ""})
    assert "pdctl context  local" in described(tmp_path, running)
    assert read_contexts().by_name["local"].pd == ("127.0.0.1:7000",)
    with pytest.raises(Unavailable, match=r"see `rangelog local status`$"):
        start(tmp_path, {"context": ""})
    write_context("prod", ["p:1"])
    with changed_contexts() as contexts:
        del contexts.by_name["local"]
    with pytest.raises(Unavailable, match="'prod' is of another cluster"):
        start(tmp_path, {"context": "prod"})
    with pytest.raises(Unavailable, match="not in use: `pdctl context use local`"):
        start(tmp_path, {"context": ""})
