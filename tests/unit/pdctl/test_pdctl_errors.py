"""What goes wrong is one line and an exit code; who is asked, and what needs a yes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from pdctl.main import main
from rangelog import TlsConfig
from rangelog.context import write_context
from rangelog_core import errors
from rangelog_proto.v1 import common_pb2, pd_pb2


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.StreamNotFound("no stream 'x'"), 3),
        (errors.RangeNotFound("no range"), 3),
        (errors.ObjectNotFound("no object"), 3),
        (errors.NamespaceNotFound("no namespace"), 3),
        (errors.TopicNotFound("no topic"), 3),
        (errors.ShardNotFound("no shard"), 3),
        (errors.NamespaceExists("namespace 'x' exists"), 5),
        (errors.TopicExists("topic 'x' exists"), 5),
        (errors.TopicStateForbids("it is sealed"), 5),
        (errors.ShardEnded("shard 1 ended"), 5),
        (errors.StaleMapVersion("version 2, not 1"), 5),
        (errors.StreamSealed("sealed for good"), 5),
        (errors.KeyRangeGap("a gap"), 2),
        (errors.KeyRangeOverlap("an overlap"), 2),
        (errors.Unavailable("nobody leads"), 4),
        (errors.RequestTimeout("no answer within 10 s"), 4),
        (errors.NoPlacement("one server is alive"), 4),
        (errors.OutcomeUnknown("it may have happened"), 4),
        (errors.StreamExists("stream 'x' exists"), 5),
        (errors.WriterFenced("epoch 9 owns it", epoch=9), 5),
        (errors.PreconditionFailed("somebody was first"), 5),
        (errors.InvalidArgument("bad name"), 2),
        (errors.ConfigInvalid("bad file"), 2),
        (errors.RecordTooLarge("2 MiB"), 1),
        (errors.Unauthorized("no token"), 1),
        (errors.OffsetTrimmed("gone", offset=3), 1),
        (errors.Corruption("checksum"), 1),
        (errors.RangelogError("two\nlines\tand \x1b[31mred"), 1),
        (ValueError("a bug\nof ours"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
    ],
)
def test_each_error_is_one_line_with_its_exit_code(pd: Any, pdctl: Any, error: Exception, exit_code: int) -> None:
    """Every error has its code, one line that says what, nothing on stdout and no stack trace."""
    pd.answers["inspect_ranges"] = error
    said = pdctl.fails(exit_code, "stream", "show", "x")
    assert "\x1b" not in said and len(said) > 3


def test_a_command_of_unknown_outcome_says_where_to_look(pd: Any, pdctl: Any) -> None:
    """A command that may have been carried out says so, and how to find out; it is not called failed."""
    pd.answers["delete_stream"] = errors.OutcomeUnknown("the command may have been carried out (nobody answers)")
    said = pdctl.fails(4, "stream", "delete", "x", "--yes")
    assert "may have been carried out" in said and "look with `pdctl stream show`" in said


def test_every_error_class_has_an_exit_code() -> None:
    """No error of the tree is forgotten: unavailable ones are 4, whatever is retriable."""
    from pdctl.session import exit_code

    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, errors.Unavailable):
            assert exit_code(each("x")) == 4, each


def test_no_endpoints(pd: Any) -> None:
    """Without any way to know the cluster, the three ways are named."""
    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["cluster", "status"])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert all(each in result.stderr for each in ("--pd", "RANGELOG_PD", "rangelog local"))
    assert pd.opened == []


def test_endpoints_come_from_option_environment_or_context(
    pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--pd beats RANGELOG_PD, which beats the context file; the token likewise."""
    from click.testing import CliRunner

    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    write_context("local", ["c:3"])
    CliRunner().invoke(main, ["server", "list"])
    monkeypatch.setenv("RANGELOG_PD", " e:5 , f:6 ")
    monkeypatch.setenv("RANGELOG_TOKEN", "secret")
    CliRunner().invoke(main, ["server", "list"])
    pdctl("--token", "other", "server", "list")
    assert [(endpoints, token) for endpoints, token, _ in pd.opened] == [
        (["c:3"], None),
        (["e:5", "f:6"], "secret"),
        (["a:1", "b:2"], "other"),
    ]


def test_a_damaged_context_file_is_one_line(pd: Any, tmp_path: Path) -> None:
    """The file is named, and what to do."""
    from click.testing import CliRunner

    path = write_context("local", ["c:3"])
    path.write_text("{")
    result = CliRunner().invoke(main, ["server", "list"])
    assert result.exit_code == 2 and str(path) in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("token", ["two\nlines", "grün", "\x00"])
def test_a_token_that_cannot_travel(pd: Any, pdctl: Any, token: str) -> None:
    """A token with a line end, as from a file, is refused in words, and is not repeated."""
    said = pdctl.fails(2, "--token", token, "server", "list")
    assert "RANGELOG_TOKEN" in said and token not in said and pd.opened == []


def test_tls_options(pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """--ca, --cert and --key turn TLS on, or their variables; two of the three are refused before anybody is asked."""
    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    pdctl("--ca", "ca.pem", "--cert", "c.pem", "--key", "k.pem", "server", "list")
    assert "--cert" in pdctl.fails(2, "--ca", "ca.pem", "--cert", "c.pem", "server", "list")
    for name in ("CA", "CERT", "KEY"):
        monkeypatch.setenv(f"RANGELOG_TLS_{name}", f"{name}-of-environment")
    pdctl("server", "list")
    pdctl("--key", "k.pem", "server", "list")
    assert [tls for _, _, tls in pd.opened] == [
        TlsConfig("ca.pem", "c.pem", "k.pem"),
        TlsConfig("CA-of-environment", "CERT-of-environment", "KEY-of-environment"),
        TlsConfig("CA-of-environment", "CERT-of-environment", "k.pem"),
    ]


def test_the_context_has_the_certificate(pd: Any, pdctl: Any) -> None:
    """It is used with the context's cluster, and with no other."""
    from click.testing import CliRunner

    pd.answers["list_servers"] = pd_pb2.ListServersResponse()
    tls = TlsConfig("ca.pem", "c.pem", "k.pem")
    path = write_context("local", ["c:3"], tls)
    CliRunner().invoke(main, ["server", "list"])
    CliRunner().invoke(main, ["--ca", "x", "--cert", "y", "--key", "z", "server", "list"])
    pdctl("server", "list")
    assert [found for _, _, found in pd.opened] == [tls, TlsConfig("x", "y", "z"), None]
    for damaged in ('{"ca": 1}', '["a"]', '{"ca": "", "cert": "a", "key": "b"}', '{"ca": "a", "cert": "b"}'):
        path.write_text(f'{{"pd": ["c:3"], "tls": {damaged}}}')
        result = CliRunner().invoke(main, ["server", "list"])
        assert result.exit_code == 2 and "names no TLS files" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("stream", "bogus"),
        ("stream", "show"),
        ("stream", "create", "x", "--range-size", "huge"),
        ("stream", "create", "x", "--retention", "7"),
        ("stream", "create", "x", "--retention", "never"),
        ("stream", "create", "x", "--replicas", "0"),
        ("stream", "create", "x", "--durability", "perhaps"),
        ("stream", "list", "-o", "xml"),
        ("stream", "read", "x", "--start", "yesterday"),
        ("stream", "read", "x", "--limit", "0"),
        ("stream", "read", "x", "--end", "latest"),
        ("stream", "append", "x", "v", "--header", "novalue"),
        ("stream", "append", "x", "v", "--header", "=v"),
        ("stream", "append", "x", "--file", "/nowhere/at/all"),
        ("stream", "trim", "x", "--yes"),
        ("stream", "trim", "x", "--to", "99999999999999999999", "--yes"),
        ("topic", "create", "a/b/c"),
        ("topic", "create", "_x"),
        ("topic", "create", "/x"),
        ("topic", "create", "x", "--shards", "0"),
        ("topic", "create", "x", "--shards", "2", "--key-range", "0..end"),
        ("topic", "create", "x", "--key-range", "8..4"),
        ("topic", "create", "x", "--scaling", "events"),
        ("topic", "create", "x", "--tag", "novalue"),
        ("topic", "list", "--prefix", "x"),
        ("topic", "update", "x"),
        ("topic", "tag", "x"),
        ("topic", "tag", "x", "novalue"),
        ("topic", "truncate", "x", "--yes"),
        ("topic", "truncate", "x", "0=1", "--to-tail", "--yes"),
        ("topic", "truncate", "x", "0=1", "0=2", "--yes"),
        ("topic", "truncate", "x", "0", "--yes"),
        ("topic", "truncate", "x", "--cut", "/nowhere/at/all", "--yes"),
        ("shard", "split", "x", "0", "--at", "8", "--parts", "2"),
        ("shard", "split", "x", "0", "--parts", "1"),
        ("shard", "split", "x", "0", "--at", "x"),
        ("shard", "merge", "x", "0"),
        ("shard", "merge", "x", "0", "0"),
        ("shard", "split", "x", "-1"),
        ("range", "show", "x", "one"),
        ("range", "show", "x", str(1 << 40)),
        ("object", "show", "x", "0"),
        ("--timeout", "0", "server", "list"),
        ("--timeout", "nan", "server", "list"),
        ("completion", "tcsh"),
    ],
)
def test_bad_usage_is_one_line_and_asks_nobody(pd: Any, pdctl: Any, arguments: tuple[str, ...]) -> None:
    """A bad option or argument is exit 2, says where the help is, and reaches no server."""
    assert "--help" in pdctl.fails(2, *arguments)
    assert pd.opened == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stream", "describe", "x"), "No such command 'describe', use pdctl stream show: see pdctl stream --help"),
        (("server", "rm", "rs1"), "No such command 'rm', use pdctl server remove: see pdctl server --help"),
        (("health",), "No such command 'health', use pdctl cluster status: see pdctl --help"),
        (("get",), "No such command 'get', use pdctl NOUN list, as in pdctl stream list: see pdctl --help"),
        (("stream", "bogus"), "No such command 'bogus': see pdctl stream --help"),
    ],
)
def test_the_verb_of_another_tool_is_answered_by_ours(
    pd: Any, pdctl: Any, arguments: tuple[str, ...], said: str
) -> None:
    """What to write in its place, where that is known."""
    assert pdctl.fails(2, *arguments) == said


@pytest.mark.parametrize(
    "arguments",
    [
        ("stream", "delete", "x"),
        ("range", "seal", "x"),
        ("namespace", "delete", "x"),
        ("topic", "delete", "n/x", "--force"),
        ("topic", "seal", "x"),
        ("topic", "truncate", "x", "--to-tail"),
        ("topic", "truncate", "x", "0=1"),
        ("group", "reset", "x", "--to", "earliest"),
        ("group", "delete", "x"),
        ("group", "unsubscribe", "x", "t"),
        ("checkpoint", "delete", "g", "x"),
        ("table", "drop", "n/x"),
    ],
)
def test_destructive_verbs_need_a_yes(
    pd: Any, pdctl: Any, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal --yes is needed; on one, the name must be typed, and nothing else will do."""
    assert "--yes" in pdctl.fails(2, *arguments)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    for typed in ("y\n", "\n", "X\n", ""):
        result = pdctl(*arguments, input=typed)
        assert result.exit_code == 1 and "nothing was done" in result.stderr, (typed, result.output)
    assert pd.opened == []


def test_the_typed_name_deletes(pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The typed name, or --yes, does it, with a request id."""
    pd.answers["delete_stream"] = pd_pb2.DeleteStreamResponse()
    assert pdctl.json("stream", "delete", "x", "--yes") == {"stream": "x", "deleted": True}
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    assert pdctl("stream", "delete", "x", input="x\n").exit_code == 0
    assert [request.name for _, request in pd.requests] == ["x", "x"]
    assert len({request.request_id for _, request in pd.requests} - {""}) == 2


def test_trim_goes_through(pd: Any, pdctl: Any) -> None:
    """Trim sends the offset."""
    pd.answers["trim_stream"] = pd_pb2.TrimStreamResponse(stream=common_pb2.Stream(name="x", trim_offset=5))
    assert pdctl.json("stream", "trim", "x", "--to", "5", "--yes")["trim_offset"] == 5
    assert pd.requests[0][1].trim_offset == 5


def test_ctrl_c_is_quiet(pd: Any, pdctl: Any) -> None:
    """An interrupted command ends with 130 and says nothing."""
    pd.answers["list_servers"] = KeyboardInterrupt()
    result = pdctl("server", "list")
    assert result.exit_code == 130 and result.stdout.strip() == "" and "Traceback" not in result.stderr


def _verbs() -> list[tuple[str, ...]]:
    return _verbs_of(main, ())


def _verbs_of(group: click.Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        if command.hidden:
            continue  # `ls` for `list`
        found += _verbs_of(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("verb", _verbs(), ids=" ".join)
def test_every_verb_has_help_with_an_example_and_an_output(pdctl: Any, verb: tuple[str, ...]) -> None:
    """`--help` of every verb shows how to call it; all print table, json and yaml, but two that have one form."""
    text = pdctl(*verb, "--help").stdout
    assert f"pdctl {' '.join(verb)}" in text.partition("Example")[2]
    assert verb in (("completion",), ("audit", "export")) or "[table|json|yaml" in text


def test_the_nouns_and_verbs() -> None:
    """The command tree is the documented one."""
    expected = """cluster status, cluster rebalance, server list, server show, server cordon, server uncordon, server drain,
        server remove, server check-impact, stream create, stream list, stream show, stream update, stream trim, stream delete,
        stream append, stream read, stream tail, range list, range show, range explain, range seal,
        cursor set, cursor get, cursor list, cursor delete, object list, object show, object manifest,
        object streams, object scrub, task list, task show, task cancel, task wait, cluster set-tier, repair list,
        repair status, repair accept-loss, doctor s3, doctor cluster, locate, verify, pd list, pd add,
        pd remove, pd replace, pd transfer-leader, pd snapshot save, pd snapshot inspect,
        namespace create, namespace list, namespace delete, topic create, topic list,
        topic show, topic update, topic tag, topic seal, topic delete, topic cut, topic truncate, topic cancel-scale,
        topic produce, topic consume, group list, group show, group lag, group reset, group delete, group unsubscribe,
        group retain, repair status, repair list, repair accept-loss,
        checkpoint create, checkpoint list, checkpoint show, checkpoint delete, table create, table list, table show,
        table get, table put, table delete, table scan, table watch, table drop,
        shard list, shard split, shard merge, shard move, broker list, broker owned,
        transaction list, transaction show, transaction abort,
        doctor s3, object scrub, cluster set-tier,
        acl grant, acl revoke, acl list, acl test, acl enforce,
        token create, token list, token show, token revoke,
        quota set, quota list, quota show, quota remove,
        restore, top, logs,
        upgrade check, upgrade finalize, audit enable, audit disable, audit status, audit show,
        audit export, audit verify, context list, context show, context use, context add, context delete,
        encryption list, encryption usage, encryption log-usage, encryption rotate, encryption new-key, completion"""
    assert {" ".join(each) for each in _verbs()} == {each.strip() for each in expected.split(",")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(pdctl: Any, shell: str) -> None:
    """A line to put into the shell's start file."""
    assert f"_PDCTL_COMPLETE={shell}_source pdctl" in pdctl("completion", shell).stdout


def test_start_up_is_light() -> None:
    """Asking for help loads no server, no gRPC, no Parquet, no Spark and no terminal library."""
    code = (
        "import sys, pdctl.main; heavy = {'grpc', 'pyarrow', 'boto3', 'pyspark', 'rich', 'yaml', 'rangelog_pd',"
        " 'rangelog_server', 'rangelog_cli', 'pysyncobj', 'pydantic'}; print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout.strip() == "[]"
