"""`pdctl context …`: clusters by name, and the one that commands go to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.session import Session, output_option, session_of
from pdctl.stopped import is_stopped
from rangelog_core.errors import InvalidArgument, PreconditionFailed

if TYPE_CHECKING:
    from rangelog.context import Context

_COLUMNS = [
    ("IN USE", lambda row: "*" if row["in_use"] else ""),
    field("NAME", "name"),
    ("PLACEMENT DRIVERS", lambda row: ",".join(row["pd"])),
    ("TLS", lambda row: "yes" if row["tls"] else "no"),
    ("TOKEN", lambda row: "yes" if row["token_file"] else "no"),
    ("STATE", lambda row: row["state"] or "-"),
    ("DATA", lambda row: row["data_dir"] or "-"),
]
_FILES = [
    *((name.upper(), lambda row, name=name: (row["tls"] or {}).get(name) or "-") for name in ("ca", "cert", "key")),
    ("TOKEN FILE", lambda row: row["token_file"] or "-"),
]


@click.group("context")
def context_group() -> None:
    """Clusters by name: those of `rangelog local` and those that you add. Commands go to the one in use, or to --context."""


@context_group.command("list")
@output_option
def list_contexts(output: str) -> None:
    """List the contexts. STATE is of clusters of `rangelog local`.

    \b
    Example:
      pdctl context list
    """
    from rangelog.context import read_contexts

    found = read_contexts()
    rows = [_view(each, found.used) for _, each in sorted(found.by_name.items())]
    emit_list(
        rows,
        output,
        _COLUMNS,
        empty="there are no contexts: add one with `pdctl context add`, or start `rangelog local`",
    )


@context_group.command()
@click.argument("name", required=False)
@output_option
@session_of
def show(session: Session, name: str | None, output: str) -> None:
    """Show a context, by default the one that commands go to.

    \b
    Example:
      pdctl context show prod
    """
    from rangelog.context import read_contexts

    found = read_contexts()
    wanted = name or session.context_name or found.used
    if wanted is None:
        raise InvalidArgument("no context is in use: choose one with `pdctl context use`")
    emit_one(_view(found.named(wanted), found.used), output, [*_COLUMNS, *_FILES])


@context_group.command()
@click.argument("name")
@output_option
def use(name: str, output: str) -> None:
    """Let commands go to this cluster from now on.

    \b
    Example:
      pdctl context use prod
    """
    from rangelog.context import changed_contexts

    with changed_contexts() as contexts:
        chosen = contexts.named(name)
        contexts.used = name
    _emit(_view(chosen, name), output, f"{name} is in use: {','.join(chosen.pd)}")


def _refuse_secret(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("a context keeps no secret: write the token to a file, and pass --token-file FILE")


@context_group.command()
@click.argument("name")
@click.option("--pd", "endpoints", required=True, metavar="HOST:PORT,…", help="Its placement drivers; all of them.")
@click.option("--ca", metavar="FILE", help="The cluster's authority, where it has TLS; then give all three files.")
@click.option("--cert", metavar="FILE", help="Your certificate.")
@click.option("--key", metavar="FILE", help="Its private key.")
@click.option("--token-file", metavar="FILE", help="A file with the token to show; with TLS --ca is enough then.")
@click.option("--token", expose_value=False, hidden=True, callback=_refuse_secret)
@click.option(
    "--use", "uses", is_flag=True, help="Let commands go to it from now on; the first context is used anyway."
)
@click.option("--replace", "replaces", is_flag=True, help="In place of the context of that name, if there is one.")
@output_option
def add(
    name: str,
    endpoints: str,
    ca: str | None,
    cert: str | None,
    key: str | None,
    token_file: str | None,
    uses: bool,
    replaces: bool,
    output: str,
) -> None:
    """Add a cluster. Files of TLS and of a token are kept by their paths, and read when they are used.

    \b
    Examples:
      pdctl context add staging --pd 10.0.0.1:7100,10.0.0.2:7100,10.0.0.3:7100
      pdctl context add prod --pd pd1.example.org:7100 --ca ca.pem --cert me.pem --key me.key --use
      pdctl context add stage --pd 10.1.0.1:7100 --ca ca.pem --token-file ~/.config/rangelog/stage.token
    """
    from rangelog.context import Context, changed_contexts, check_context_name

    files = {name: _file(name, path) for name, path in (("ca", ca), ("cert", cert), ("key", key)) if path is not None}
    token = None if token_file is None else _file("token-file", token_file)
    if len(files) not in (0, 3) and not (token is not None and set(files) == {"ca"}):
        raise InvalidArgument("--ca, --cert and --key go together: give all three; with --token-file --ca is enough")
    made = Context(check_context_name(name), _addresses(endpoints), _tls(files), token_file=token)
    with changed_contexts() as contexts:
        if name in contexts.by_name and not replaces:
            raise PreconditionFailed(
                f"context {name!r} exists ({','.join(contexts.by_name[name].pd)}): pass --replace, or choose another name"
            )
        contexts.by_name[name] = made
        if uses or contexts.used is None:
            contexts.used = name
        used = contexts.used
    how = "is in use" if used == name else f"use it with --context {name}, or `pdctl context use {name}`"
    _emit(_view(made, used), output, f"added context {name}: {how}")


@context_group.command()
@click.argument("name")
@output_option
def delete(name: str, output: str) -> None:
    """Forget a cluster's addresses. The cluster and its data stay as they are.

    \b
    Example:
      pdctl context delete staging
    """
    from rangelog.context import changed_contexts

    with changed_contexts() as contexts:
        contexts.named(name)
        del contexts.by_name[name]
        was_used = contexts.used == name
        contexts.used = None if was_used else contexts.used
    more = "; none is in use now: choose one with `pdctl context use`" if was_used else ""
    emit_done(f"deleted context {name}{more}", {"context": name, "deleted": True}, output)


def _view(context: Context, used: str | None) -> dict[str, Any]:
    from dataclasses import asdict

    state = None if context.data_dir is None else "stopped" if is_stopped(context) else "running"
    return {
        "name": context.name,
        "in_use": context.name == used,
        "pd": list(context.pd),
        "tls": asdict(context.tls) if context.tls is not None else None,
        "token_file": context.token_file,
        "state": state,
        "data_dir": context.data_dir,
    }


def _emit(view: dict[str, Any], output: str, text: str) -> None:
    emit_done(text, view, output)


def _addresses(endpoints: str) -> tuple[str, ...]:
    from rangelog_core.net.addresses import split_address

    found = tuple(each.strip() for each in endpoints.split(",") if each.strip())
    if not found:
        raise InvalidArgument("--pd names no placement driver: give host:port,…")
    for each in found:
        split_address(each)
    return found


def _file(option: str, path: str) -> str:
    if not Path(path).is_file():
        raise InvalidArgument(f"--{option}: {path} is no file: check the path")
    return os.path.abspath(path)  # without ".."; links stay, for files that are renewed behind them


def _tls(files: dict[str, str]) -> Any:
    from rangelog_core.net.tls import TlsConfig

    return TlsConfig(**files) if files else None
