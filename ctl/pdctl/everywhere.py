"""The options of every verb: those of `pdctl` itself, `ls` for `list`, and --watch.

What holds: a verb's own option comes first: `--key` of `pdctl stream append` is the records' key, and the private key of a
certificate stands before the noun there.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click
from click.core import ParameterSource

from pdctl.completing import Named, note_typed
from pdctl.output import printable
from pdctl.session import Session
from rangelog_core.errors import RangelogError

OUTPUTS = ("table", "json", "yaml")
WATCHED_VERBS = ("list", "show", "status", "lag")
_FOOTER = "The options of `pdctl --help` (--pd, --context, --timeout, …) may stand here as well."


def _number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Parse a number of seconds. Bounds alone would allow `nan`."""
    if math.isnan(value):
        raise click.BadParameter("not a number of seconds")
    return value


def cluster_options() -> list[click.Option]:
    """Return the options of `pdctl` itself; each is a field of Session."""
    return [
        click.Option(["--context", "context_name"], type=Named(click.STRING, "context"), envvar="RANGELOG_CONTEXT",
                     metavar="NAME",
                     help="The cluster of this context: see `pdctl context`. Else RANGELOG_CONTEXT."),
        click.Option(["--pd", "endpoints"], envvar="RANGELOG_PD", metavar="HOST:PORT,…",
                     help="Placement drivers. Else RANGELOG_PD, else the context in use."),
        click.Option(["--token"], envvar="RANGELOG_TOKEN", help="Bearer token. Else RANGELOG_TOKEN."),
        click.Option(["--token-file"], envvar="RANGELOG_TOKEN_FILE", metavar="FILE",
                     help="A file with the token, which no list of processes shows. Else RANGELOG_TOKEN_FILE."),
        click.Option(["--ca"], envvar="RANGELOG_TLS_CA", metavar="FILE",
                     help="The cluster's authority; turns TLS on. Else RANGELOG_TLS_CA."),
        click.Option(["--cert"], envvar="RANGELOG_TLS_CERT", metavar="FILE",
                     help="Your certificate, of role admin. Else RANGELOG_TLS_CERT."),
        click.Option(["--key"], envvar="RANGELOG_TLS_KEY", metavar="FILE",
                     help="Its private key. Else RANGELOG_TLS_KEY."),
        click.Option(["--timeout", "timeout_s"], type=click.FloatRange(0, 3600, min_open=True), default=10.0,
                     show_default=True, callback=_number, help="Seconds to wait for an answer."),
        click.Option(["-o", "--output"], type=click.Choice(OUTPUTS), help="How to print; errors too, with json."),
    ]  # fmt: skip


def spread(root: click.Group) -> None:
    """Give all nouns and verbs below `root` what they have in common. Called once, when the tree is complete."""
    for name, command in list(root.commands.items()):
        _add_options(command)
        if isinstance(command, click.Group):
            spread(command)
        else:
            command.epilog = command.epilog or _FOOTER
            if name in WATCHED_VERBS:
                _make_watchable(command)
    if "list" in root.commands and "ls" not in root.commands:
        alias = copy.copy(root.commands["list"])
        alias.hidden = True
        root.add_command(alias, "ls")


def _add_options(command: click.Command) -> None:
    taken = {name for each in command.params for name in (*each.opts, each.name)}
    for option in cluster_options():
        if option.name == "output" and not isinstance(command, click.Group):
            continue  # a verb without its own prints in one form only
        names = [name for name in option.opts if name not in taken]
        if names and option.name not in taken:
            check = functools.partial(_override, field=option.name or "", callback=option.callback)
            hidden = click.Option(
                [*names, option.name or ""], type=option.type, hidden=True, expose_value=False, callback=check
            )
            command.params.append(hidden)


def _override(context: click.Context, option: click.Parameter, value: Any, *, field: str, callback: Any) -> None:
    session = context.find_object(Session)
    if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE:
        return
    changed: dict[str, Any] = {field: callback(context, option, value) if callback is not None else value}
    if field == "token_file":
        changed |= {"token": None}
    if field in ("endpoints", "context_name"):  # the later one counts
        changed = {"endpoints": None, "context_name": None} | changed
    if session is not None:
        context.obj = dataclasses.replace(session, **changed)
    elif context.resilient_parsing:
        note_typed(context, changed)


def _make_watchable(command: click.Command) -> None:
    """Add --watch, which runs the verb again and again."""
    callback = command.callback
    assert callback is not None, "a verb does something"
    command.params += [
        click.Option(["--watch"], is_flag=True, help="Show it again and again, until Ctrl-C; on a terminal."),
        click.Option(["--interval", "watch_interval_s"], type=click.FloatRange(0.2, 3600), default=2.0,
                     show_default=True, help="With --watch: seconds between two looks."),
    ]  # fmt: skip

    @functools.wraps(callback)
    def call(*args: Any, watch: bool, watch_interval_s: float, **options: Any) -> Any:
        if not watch:
            return callback(*args, **options)
        if options.get("output") != "table" or not sys.stdout.isatty():
            raise click.UsageError("--watch draws tables on a terminal: leave it out, and repeat the command")
        title = f"every {watch_interval_s:g} s: {click.get_current_context().command_path}   (Ctrl-C ends it)"
        while True:
            frame = look(lambda: callback(*args, **options))
            sys.stdout.write(drawn(title, frame, shutil.get_terminal_size()))
            sys.stdout.flush()
            time.sleep(watch_interval_s)

    command.callback = call


def look(work: Callable[[], Any]) -> str:
    """Return what a verb prints. An error that may pass is part of it; others are raised."""
    page = io.TextIOWrapper(io.BytesIO(), "utf-8")
    problem = ""
    with redirect_stdout(page), redirect_stderr(page):
        try:
            work()
        except click.exceptions.Exit:
            pass  # a verb whose exit code tells of health
        except RangelogError as error:
            if not error.retriable:
                raise
            problem = f"pdctl: {printable(error.message)}\n"
    page.flush()
    buffer: io.BytesIO = page.buffer  # type: ignore[assignment]
    return buffer.getvalue().decode() + problem


def drawn(title: str, frame: str, size: os.terminal_size) -> str:
    """Return what replaces the screen by a frame: at most the screen's lines, each at most its width."""
    lines, room = frame.splitlines(), max(1, size.lines - 3)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: without --watch they are all shown"]
    body = "".join(f"{line[: size.columns]}\x1b[K\n" for line in [title, "", *lines])
    return f"\x1b[H{body}\x1b[J"
