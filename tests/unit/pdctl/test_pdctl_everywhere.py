"""What every verb takes: options of `pdctl` in any place, `ls`, --watch, errors as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pdctl.everywhere import drawn, look
from pdctl.main import main
from pdctl.session import asks_for_json
from rangelog import TlsConfig
from rangelog.context import write_context
from rangelog_core import errors
from rangelog_proto.v1 import common_pb2, pd_pb2


def _groups(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += _groups(command, (*path, name))
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pd", "d:4", "--token", "t", "server", "list"),
        ("server", "--pd", "d:4", "list", "--token", "t"),
        ("server", "list", "--pd=d:4", "--token=t"),
        ("--pd", "x:1", "server", "ls", "--token", "t", "--pd", "d:4"),
    ],
)
def test_options_of_the_cluster_stand_anywhere(pd: Any, arguments: tuple[str, ...]) -> None:
    """Before the noun, between noun and verb, behind the verb; the last one counts."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert pd.opened == [(["d:4"], "t", None)]


def test_tls_options_behind_the_verb(pd: Any, pdctl: Any) -> None:
    """The three files too; a verb with a --key of its own keeps that."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    pdctl("server", "list", "--ca", "ca.pem", "--cert", "c.pem", "--key", "k.pem")
    assert [tls for _, _, tls in pd.opened] == [TlsConfig("ca.pem", "c.pem", "k.pem")]
    assert "The key of every record" in pdctl("stream", "append", "--help").stdout


@pytest.mark.parametrize("arguments", [("-o", "json", "server", "list"), ("server", "-o", "json", "list"),
                                       ("-o", "yaml", "server", "list", "-o", "json")])  # fmt: skip
def test_the_output_may_be_chosen_before_the_verb(pd: Any, pdctl: Any, arguments: tuple[str, ...]) -> None:
    """The verb's own -o beats it."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="rs1")])
    assert json.loads(pdctl(*arguments).stdout)[0]["name"] == "rs1"


@pytest.mark.parametrize("timeout", ["0", "nan", "many"])
def test_a_bad_timeout_behind_the_verb(pd: Any, pdctl: Any, timeout: str) -> None:
    """It is checked as before the noun."""
    assert "--help" in pdctl.fails(2, "server", "list", "--timeout", timeout)
    assert pd.opened == []


def test_ls_is_list_wherever_there_is_a_list() -> None:
    """Every noun that lists takes `ls`, and its help does not show it twice."""
    listing = 0
    for path in _groups(main):
        group: Any = main
        for name in path:
            group = group.commands[name]
        if "list" in group.commands:
            listing += 1
            assert CliRunner().invoke(main, [*path, "ls", "--help"]).exit_code == 0
            shown = CliRunner().invoke(main, [*path, "--help"]).stdout
            assert "\n  list" in shown and "\n  ls" not in shown
    assert listing > 12


def test_errors_are_json_where_the_output_is(pd: Any, pdctl: Any) -> None:
    """One object on one line of standard error, with what a program decides by; exit codes stay."""
    cases: list[tuple[Exception, int, str, bool, bool]] = [
        (errors.StreamNotFound("no stream 'x'"), 3, "STREAM_NOT_FOUND", False, False),
        (errors.Unavailable("nobody leads"), 4, "UNAVAILABLE", True, False),
        (errors.OutcomeUnknown("who knows"), 4, "OUTCOME_UNKNOWN", True, True),
        (ValueError("a bug"), 1, "INTERNAL", False, False),
    ]
    for error, exit_code, code, retriable, unknown in cases:
        pd.answers["list_servers"] = error
        result = pdctl("server", "list", "-o", "json")
        assert result.exit_code == exit_code and result.stdout == "" and result.stderr.count("\n") == 1
        found = json.loads(result.stderr)["error"]
        assert found.pop("message")
        assert found == {"code": code, "retriable": retriable, "outcome_unknown": unknown}
    for arguments in (("server", "bogus", "-o", "json"), ("-o", "json", "stream", "delete", "x")):
        result = pdctl(*arguments)
        assert result.exit_code == 2 and json.loads(result.stderr)["error"]["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["stream", "list", "-o", "json"], True),
        (["stream", "list", "-ojson"], True),
        (["stream", "list", "--output=json"], True),
        (["stream", "append", "x", "--", "-o", "json"], False),
        (["stream", "append", "x", "json"], False),
        (["stream", "list", "-o", "yaml"], False),
    ],
)
def test_who_asks_for_json(arguments: list[str], asked: bool) -> None:
    """Arguments behind -- are data."""
    assert asks_for_json(arguments) is asked


def test_context_and_pd_exclude_each_other(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed both, they are refused; what is typed beats the environment."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    write_context("other", ["c:3"])
    both = CliRunner().invoke(main, ["--context", "other", "--pd", "d:4", "server", "list"])
    assert both.exit_code == 2 and "--context and --pd" in both.stderr
    monkeypatch.setenv("RANGELOG_PD", "e:5")
    CliRunner().invoke(main, ["--context", "other", "server", "list"])
    CliRunner().invoke(main, ["server", "list", "--context", "other"])
    monkeypatch.setenv("RANGELOG_CONTEXT", "other")
    CliRunner().invoke(main, ["server", "list"])
    CliRunner().invoke(main, ["--pd", "d:4", "server", "list"])
    assert [endpoints for endpoints, _, _ in pd.opened] == [["c:3"], ["c:3"], ["e:5"], ["d:4"]]


def test_watch_needs_a_terminal_and_a_table(pd: Any, pdctl: Any) -> None:
    """In a pipe, or with -o json, it is refused before anybody is asked."""
    assert "on a terminal" in pdctl.fails(2, "server", "list", "--watch")
    assert pd.opened == []


def test_watch_draws_again_and_again_until_interrupted(pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look asks anew; an outage is shown and survived; Ctrl-C ends it with 130 and no trace."""
    waits: list[float] = []
    answers: list[Any] = [
        pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="rs1")]),
        errors.Unavailable("nobody leads"),
        pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="rs2")]),
    ]

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    def answer(_request: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    pd.answers["list_servers"] = answer
    monkeypatch.setattr("pdctl.everywhere.time.sleep", wait)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    result = pdctl("server", "list", "--watch", "--interval", "0.5")
    assert result.exit_code == 130 and "Traceback" not in result.stderr and waits == [0.5] * 3
    first, second, third = result.stdout.split("\x1b[H")[1:]
    assert "rs1" in first and "nobody leads" in second and "rs2" in third and "rs1" not in third


def test_watch_ends_with_an_error_that_does_not_pass(pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches a stream that is not there is told so once."""
    pd.answers["inspect_ranges"] = errors.StreamNotFound("no stream 'x'")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    result = pdctl("stream", "show", "x", "--watch")
    assert result.exit_code == 3 and "no stream 'x'" in result.stderr


def test_a_frame_is_bounded_by_the_screen() -> None:
    """What does not fit is counted; long lines are cut; nothing scrolls."""
    frame = drawn("title", "\n".join(f"line {number} {'x' * 50}" for number in range(100)), os.terminal_size((20, 10)))
    lines = frame.split("\n")
    assert len(lines) == 10 and "… 94 more lines" in frame
    assert max(len(line.replace("\x1b[K", "").replace("\x1b[H", "")) for line in lines) <= 20


def test_a_look_takes_what_is_printed_and_not_the_exit_code() -> None:
    """A degraded cluster's status has an exit code; the watch goes on."""

    def degraded() -> None:
        click.echo("degraded")
        raise click.exceptions.Exit(1)

    assert look(degraded) == "degraded\n"


def test_a_created_stream_is_said_to_be_created(pd: Any, pdctl: Any) -> None:
    """In one line, with what the cluster has filled in; in JSON it is all there."""
    config = common_pb2.StreamConfig(
        replicas=3, acks=2, durability=common_pb2.DURABILITY_FLUSHED, retention_ms=86_400_000
    )
    pd.answers["create_stream"] = pd_pb2.CreateStreamResponse(stream=common_pb2.Stream(name="clicks", config=config))
    said = pdctl("stream", "create", "clicks").stdout
    assert said.startswith("created stream clicks: acked by 2 of 3, flushed; records are kept for 1d;")
    assert said.count("\n") == 1
    assert pdctl.json("stream", "create", "clicks")["config"]["replicas"] == 3


@pytest.mark.parametrize("noun", ["stream", "topic"])
def test_help_says_what_a_new_one_gets_and_not_what_a_change_would(noun: str) -> None:
    """Defaults stand at `create`; `update` leaves alone what is not given."""
    created, updated = (
        " ".join(CliRunner().invoke(main, [noun, verb, "--help"]).stdout.split()) for verb in ("create", "update")
    )
    for text in (
        "[default: 3, unless the cluster has another]",
        "[default: 2, or 1 with one replica]",
        "[default: 512MiB]",
    ):
        assert text in created and text not in updated
