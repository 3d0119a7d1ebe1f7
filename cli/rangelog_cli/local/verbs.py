"""`rangelog local` and its verbs, as click has them; what they do is in `command` and `background`."""

from __future__ import annotations

from pathlib import Path

import click

DATA_DIR = Path("rangelog-data")


@click.group(invoke_without_command=True, subcommand_metavar="[status|stop|logs]")
@click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False), default=DATA_DIR, show_default=True,
    help="Everything the cluster keeps.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Run it in the background, and return when it is up.")
@click.option("--pds", type=int, help="Placement drivers: 1 or 3.  [default: 3, or as it was]")
@click.option("--range-servers", type=int, help="More may be added later.  [default: 3, or as it was]")
@click.option(
    "--brokers",
    type=int,
    help="For topics; any number, also none.  [default: 2 (0 with one range server), or as it was]",
)
@click.option("--tier", "tier_url", metavar="URL", help="Where sealed ranges go.  [default: a folder in the data dir]")
@click.option("--port", type=int, help="Of the first PD; the rest follow.  [default: 7100, or as it was; 0: any free]")
@click.option(
    "--tls/--no-tls",
    default=None,
    help="Mutual TLS on all ports, with an authority in the data dir.  [default: as it was]",
)
@click.option(
    "--encrypted/--in-clear",
    default=None,
    help="Encrypt objects and logs, with a key in the data dir.  [default: as it was]",
)
@click.option(
    "--tokens/--no-tokens",
    default=None,
    help="Accept tokens of `pdctl token create` as well as certificates; with --tls.  [default: as it was]",
)
@click.option(
    "--doors", metavar="NAMES", help="Of brokers: http, or none.  [default: all that are installed, or as it was]"
)
@click.option("--context", "context_name", metavar="NAME", help="Name of its context for pdctl.  [default: local]")
@click.option("--no-context", is_flag=True, help="Do not write a context for pdctl.")
@click.option("--in-background", is_flag=True, hidden=True, help="What --detach starts.")
@click.pass_context
def local(
    context: click.Context,
    /,
    data_dir: Path,
    detach: bool,
    pds: int | None,
    range_servers: int | None,
    brokers: int | None,
    tier_url: str | None,
    port: int | None,
    tls: bool | None,
    encrypted: bool | None,
    tokens: bool | None,
    doors: str | None,
    context_name: str | None,
    no_context: bool,
    in_background: bool,
) -> int:
    """Run a whole cluster on this machine, in one directory, until Ctrl-C; with --detach until `rangelog local stop`.

    A later start with the same --data-dir continues with the same data. A member that crashes is started again. Any setting
    of its processes is taken from the environment (RANGELOG_SERVER_CACHE_BYTES=…); retention is a stream's own
    (`pdctl stream create NAME --retention 7d`).

    \b
    Examples:
      rangelog local
      rangelog local --data-dir /tmp/try --range-servers 5 --port 8100
      rangelog local --tier 's3://bucket/prefix?endpoint=http://127.0.0.1:9000' --encrypted
      rangelog local --detach && rangelog local status && rangelog local stop
    """
    if context.invoked_subcommand is not None:
        return 0
    if context_name is not None and no_context:
        raise click.UsageError("--context and --no-context exclude each other")
    if detach:
        from rangelog_cli.local.background import start

        options = {
            "pds": pds, "range_servers": range_servers, "brokers": brokers, "tier_url": tier_url, "port": port, "tls": tls,
            "encrypted": encrypted, "tokens": tokens, "doors": doors, "context": None if no_context else context_name or "",
        }  # fmt: skip
        click.echo(start(data_dir.absolute(), options), nl=False)
        return 0
    from rangelog_cli.local.command import run_local

    return run_local(
        data_dir, pds=pds, range_servers=range_servers, brokers=brokers, tier_url=tier_url, port=port, tls=tls,
        encrypted=encrypted, tokens=tokens, doors=doors, context_name=context_name, write_context=not no_context,
        in_background=in_background,
    )  # fmt: skip


def _data_dir(context: click.Context, _option: click.Parameter, value: Path | None) -> Path:
    """Return the verb's directory, else the one before the verb."""
    before = context.parent.params.get("data_dir", DATA_DIR) if context.parent is not None else DATA_DIR
    return (value or before).absolute()  # type: ignore[no-any-return]


_DIRECTORY = click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False), callback=_data_dir,
    help="Of the cluster.  [default: rangelog-data]",
)  # fmt: skip


@local.command()
@_DIRECTORY
def status(data_dir: Path) -> int:
    """Say whether the cluster runs, where, and since when. Exit code 0: it runs, 1: it does not.

    \b
    Example:
      rangelog local status
    """
    from rangelog_cli.local.background import described, find_running

    running = find_running(data_dir)
    click.echo(described(data_dir, running))
    return 0 if running is not None else 1


@local.command()
@_DIRECTORY
@click.option("--timeout", "timeout_s", type=click.FloatRange(1, 600), default=60.0, show_default=True,
              help="Seconds to wait for its end.")  # fmt: skip
def stop(data_dir: Path, timeout_s: float) -> int:
    """Stop the cluster of a directory, in the background or in another terminal. The data stays.

    \b
    Example:
      rangelog local stop --data-dir /tmp/try
    """
    from rangelog_cli.local.background import stop as stop_it

    click.echo(stop_it(data_dir, timeout_s))
    return 0


@local.command()
@click.argument("members", nargs=-1, metavar="[MEMBER]...")
@_DIRECTORY
@click.option("-n", "--lines", "count", type=click.IntRange(0, 10_000), default=20, show_default=True,
              help="How many to begin with, of each member.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
def logs(members: tuple[str, ...], data_dir: Path, count: int, follow: bool) -> int:
    """Show the ends of the logs of the cluster's processes, whether it runs or not. `local` is what started them.

    \b
    Examples:
      rangelog local logs
      rangelog local logs rs1 pd2 -n 100 --follow
    """
    from rangelog_cli.local.log_files import follow_logs, last_lines

    shown = last_lines(data_dir, members, count)
    for line in shown.lines:
        click.echo(line)
    if follow:
        try:
            follow_logs(shown, click.echo)
        except KeyboardInterrupt:
            click.echo(err=True)
    return 0
