"""Tokens of contexts: the path is kept, the token is not, and it is read when it is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pdctl.main import main
from rangelog import TlsConfig, TokenFile
from rangelog.context import Context, context_path, read_context, read_contexts
from rangelog_core.errors import ConfigInvalid
from rangelog_jobs.cluster import find_cluster
from rangelog_proto.v1 import pd_pb2

SECRET = "rlt1.not-for-any-file"


def run(*arguments: str, **env: str) -> Result:
    """pdctl without --pd."""
    return CliRunner().invoke(main, arguments, prog_name="pdctl", env=env)


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a token, and a file of contexts that is the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "my.token"
    path.write_text(SECRET + "\n")
    return str(path)


def shown(token: Any) -> str | None:
    """What a server would see."""
    return token() if callable(token) else token


def test_a_context_shows_its_token(pd: Any, token: str) -> None:
    """With that context only; what is typed, or in the environment, comes first. A new token needs no new context."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    assert run("context", "add", "x", "--pd", "a:1", "--token-file", os.path.relpath(token)).exit_code == 0
    assert run("context", "add", "y", "--pd", "b:2").exit_code == 0
    for arguments, env in (
        ((), {}), (("--context", "y"), {}), (("--pd", "c:3"), {}), (("--token", "typed"), {}),
        ((), {"RANGELOG_TOKEN": "of-environment"}),
    ):  # fmt: skip
        assert run("server", "list", *arguments, **env).exit_code == 0
    assert [shown(each) for _, each, _ in pd.opened] == [SECRET, None, None, "typed", "of-environment"]
    Path(token).write_text("rlt1.the-next-one")
    run("server", "list")
    assert shown(pd.opened[-1][1]) == "rlt1.the-next-one"


def test_no_secret_is_kept(token: str) -> None:
    """Neither in the file nor on the screen; a token that is typed is refused, with what to do."""
    added = run("context", "add", "x", "--pd", "a:1", "--token-file", token, "-o", "json")
    listed = run("context", "list").stdout + run("context", "show", "x").stdout + added.stdout
    assert SECRET not in listed + context_path().read_text() and token in listed
    assert json.loads(added.stdout)["token_file"] == token
    refused = run("context", "add", "z", "--pd", "a:1", "--token", SECRET)
    assert refused.exit_code == 2 and "--token-file" in refused.stderr and SECRET not in refused.stderr
    missing = run("context", "add", "z", "--pd", "a:1", "--token-file", "/nowhere/at/all")
    assert missing.exit_code == 2 and "/nowhere/at/all is no file" in missing.stderr
    assert set(read_contexts().by_name) == {"x"}


def test_with_tls_the_authority_is_enough(pd: Any, token: str, tmp_path: Path) -> None:
    """With a token, not without one; programs before tokens read the other contexts of the file still."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    ca = tmp_path / "ca.pem"
    ca.touch()
    assert "all three" in run("context", "add", "x", "--pd", "a:1", "--ca", str(ca)).stderr
    run("context", "add", "x", "--pd", "a:1", "--ca", str(ca), "--token-file", token)
    assert read_context("x") == Context("x", ("a:1",), TlsConfig(str(ca)), None, token)
    assert "tls" not in json.loads(context_path().read_text())["contexts"]["x"]
    run("server", "list")
    ((_, token_shown, tls),) = pd.opened
    assert (shown(token_shown), tls) == (SECRET, TlsConfig(str(ca)))


def test_spark_jobs_show_it_too(token: str) -> None:
    """Unless they are given one, or a cluster."""
    run("context", "add", "x", "--pd", "a:1", "--token-file", token)
    assert find_cluster(None, None, None).token == TokenFile(token)
    assert find_cluster(None, "mine", None).token == "mine"
    assert find_cluster("b:2", None, None).token is None


@pytest.mark.parametrize("damage", [{"token_file": 3}, {"token_file": ""}, {"ca": []}])
def test_damaged_paths_are_refused(token: str, damage: dict[str, Any]) -> None:
    """As a whole, by the file's name."""
    run("context", "add", "x", "--pd", "a:1", "--token-file", token)
    parsed = json.loads(context_path().read_text())
    parsed["contexts"]["x"] |= damage
    context_path().write_text(json.dumps(parsed))
    with pytest.raises(ConfigInvalid, match="paths that are none"):
        read_context()
