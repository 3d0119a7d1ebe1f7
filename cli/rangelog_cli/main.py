"""The `rangelog` command.

Commands are declared here; the modules that do the work are imported only when a command runs, so that `rangelog --help` is
quick and a missing extra affects only its own commands. Every error is one line, `rangelog: <what>: <what to do>`. Exit
codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from rangelog_cli.certs.command import certs
from rangelog_cli.files.group import files
from rangelog_cli.installed_commands import Commands
from rangelog_cli.local.lifeline import follow_parent
from rangelog_cli.local.verbs import local

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
DEBUG_ENV = "RANGELOG_DEBUG"


@click.group(cls=Commands, context_settings=_CONTEXT)
@click.version_option(package_name="rangelog", prog_name="rangelog")
def cli() -> None:
    """A range-based, tiered, replicated log store.

    \b
    Try it:
      rangelog demo                     all parts on real data, in a few minutes; of rangelog-workbench
      rangelog local                    a cluster on this machine; then, elsewhere: pdctl cluster status
    """


def _tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((
        click.option("--tls-ca", metavar="FILE", help="PEM file of the certificate authorities; turns mutual TLS on."),
        click.option("--tls-cert", metavar="FILE", help="PEM file of this process's certificate: see `rangelog certs`."),
        click.option("--tls-key", metavar="FILE", help="PEM file of its private key."),
        click.option("--insecure", is_flag=True, default=None, help="Serve other machines without TLS."),
    )):  # fmt: skip
        command = option(command)
    return command


def _host_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((
        click.option("--host", help="Host: no range has two copies on one. By default a process has its own."),
        click.option("--processes", type=click.IntRange(1, 64), metavar="N",
                     help="Run N processes, NAME-1 to NAME-N, with one host (by default this machine's name): process i has "
                          "each port plus 100 (i - 1), and the directory DIR/i."),
    )):  # fmt: skip
        command = option(command)
    return command


@cli.command()
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the keys below, in snake_case.")
@click.option("--name", help="Name of this member, one of those given by --member.")
@click.option("--listen", metavar="HOST:PORT", help="Address of the API.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Directory of journal and snapshots; created if missing."
)
@click.option(
    "--member", "members", multiple=True, metavar="NAME=RAFT@API", help="Each member of a new group, this one included."
)
@click.option(
    "--join", metavar="HOST:PORT", help="Instead: API of a member of a group; then `pdctl pd add` adds this one."
)
@click.option(
    "--restore-snapshot",
    type=click.Path(path_type=Path),
    help="Begin a new group of one with this saved state, on an empty directory.",
)
@click.option(
    "--raft-listen", metavar="HOST:PORT", help="Address for the other members; with --member, if not as given there."
)
@click.option("--metrics-listen", metavar="HOST:PORT", help="Address of metrics and probes; none by default.")
@click.option("--page-listen", metavar="HOST:PORT", help="Address of the page for browsers; none by default.")
@click.option("--page-cert", metavar="FILE", help="With TLS: the certificate by which the page asks the cluster.")
@click.option("--page-key", metavar="FILE", help="Its private key.")
@click.option("--tier-url", metavar="URL", help="s3://bucket/prefix?endpoint=… or file:///dir; empty: no tier.")
@click.option("--heartbeat-interval-ms", type=int, help="Time between two heartbeats of a range server.")
@click.option("--server-suspect-ms", type=int, help="Silence after which a range server is suspect.")
@click.option("--server-dead-ms", type=int, help="Silence after which a range server is dead.")
@click.option("--tier-prepare-ttl-ms", type=int, help="Time limit of one upload.")
@_tls_options
def pd(config: Path | None, **flags: Any) -> int:
    """Run one placement driver until SIGTERM or Ctrl-C.

    Flags have precedence over the environment (RANGELOG_PD_…), and it over the file. Give the secrets by environment or
    file only: RANGELOG_PD_RAFT_SECRET, RANGELOG_PD_TOKEN. docs/configuration.md has every key, with its default.

    \b
    Example, the first of three:
      rangelog pd --name pd1 --listen 10.0.0.1:7100 --data-dir /var/lib/rangelog/pd1 \\
        --member pd1=10.0.0.1:7140@10.0.0.1:7100 --member pd2=10.0.0.2:7140@10.0.0.2:7100 \\
        --member pd3=10.0.0.3:7140@10.0.0.3:7100 --tier-url 's3://logs/prod?endpoint=https://s3.example.org'

    \b
    One more, on an empty directory; then: pdctl pd add pd4=10.0.0.4:7140@10.0.0.4:7100
      rangelog pd --name pd4 --listen 10.0.0.4:7100 --raft-listen 10.0.0.4:7140 --data-dir /var/lib/rangelog/pd4 \\
        --join 10.0.0.1:7100 --tier-url 's3://logs/prod?endpoint=https://s3.example.org'
    """
    from rangelog_cli.servers import run_pd

    return run_pd(config, flags)


@cli.command("range-server")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the keys below, in snake_case.")
@click.option("--name", help="Name of this server, unique in the cluster.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Directory of the write-ahead log; created if missing."
)
@click.option("--data-listen", metavar="HOST:PORT", help="Address of the data plane, for clients.")
@click.option("--control-listen", metavar="HOST:PORT", help="Address of the control plane.")
@click.option("--metrics-listen", metavar="HOST:PORT", help="Address of metrics and probes; none by default.")
@click.option("--advertise-host", metavar="HOST", help="The host by which others reach this server.")
@click.option("--pd", multiple=True, metavar="HOST:PORT", help="API of a placement driver; give all of them.")
@click.option("--zone", help="Failure domain: replicas of a range go to different ones.")
@click.option(
    "--rack", help="Failure domain within the zone: replicas go to different ones where zones do not suffice."
)
@_host_options
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="What streams may ask for: --server-label.")
@click.option("--tier-url", metavar="URL", help="Overrides the placement driver's URL of the object store.")
@click.option("--capacity-bytes", type=int, help="Size at which the log counts as full.")
@click.option("--segment-size-bytes", type=int, help="Size of one write-ahead log segment.")
@_tls_options
def range_server(config: Path | None, **flags: Any) -> int:
    """Run one range server until SIGTERM or Ctrl-C.

    Flags have precedence over the environment (RANGELOG_SERVER_…), and it over the file. Give the token by environment
    or file only: RANGELOG_SERVER_TOKEN. docs/configuration.md has every key, with its default.

    \b
    Example:
      rangelog range-server --name rs1 --data-dir /var/lib/rangelog/rs1 --zone rack1 \\
        --data-listen 10.0.0.4:7180 --control-listen 10.0.0.4:7181 \\
        --pd 10.0.0.1:7100 --pd 10.0.0.2:7100 --pd 10.0.0.3:7100

    \b
    Four on a machine of many cores: rs1-1 at ports 7180 and 7181, rs1-2 at 7280 and 7281, …
      rangelog range-server --processes 4 --name rs1 --data-dir /var/lib/rangelog/rs1 --pd 10.0.0.1:7100
    """
    from rangelog_cli.servers import run_range_server

    return run_range_server(config, flags)


@cli.command()
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the keys below, in snake_case.")
@click.option("--name", help="Name of this broker, unique in the cluster.")
@click.option("--listen", metavar="HOST:PORT", help="Address for producers.")
@click.option("--control-listen", metavar="HOST:PORT", help="Address of the services for groups, transactions, tables.")
@click.option("--rest-listen", metavar="HOST:PORT", help="Address of the REST interface; empty: none.")
@click.option("--metrics-listen", metavar="HOST:PORT", help="Address of metrics and probes; none by default.")
@click.option("--advertise-host", metavar="HOST", help="The host by which others reach this broker.")
@click.option("--pd", multiple=True, metavar="HOST:PORT", help="API of a placement driver; give all of them.")
@click.option("--zone", help="Failure domain.")
@_host_options
@click.option("--tier-url", metavar="URL", help="Overrides the placement driver's URL of the object store.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Directory for the file that names its addresses.")
@_tls_options
def broker(config: Path | None, **flags: Any) -> int:
    """Run one broker until SIGTERM or Ctrl-C. It keeps no data: any number may run, and each may be stopped at any time.

    Flags have precedence over the environment (RANGELOG_BROKER_…), and it over the file. Give the token by environment
    or file only: RANGELOG_BROKER_TOKEN. docs/configuration.md has every key, with its default.

    \b
    Example:
      rangelog broker --name broker1 --zone rack1 --listen 10.0.0.7:7190 --control-listen 10.0.0.7:7191 \\
        --pd 10.0.0.1:7100 --pd 10.0.0.2:7100 --pd 10.0.0.3:7100

    \b
    Four on a machine of many cores: broker1-1 at ports 7190 to 7192, broker1-2 at 7290 to 7292, …
      rangelog broker --processes 4 --name broker1 --pd 10.0.0.1:7100
    """
    from rangelog_cli.servers import run_broker

    return run_broker(config, flags)


@cli.command()
@click.argument("question", type=click.Choice(["live", "ready"]))
@click.option("--metrics", metavar="HOST:PORT", default="127.0.0.1:9180", show_default=True,
              help="The process's metrics_listen.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0.1, max=60), default=4.0, show_default=True, help="Seconds.")
@click.option("--ca", envvar="RANGELOG_TLS_CA", metavar="FILE", help="Else RANGELOG_TLS_CA.")
@click.option(
    "--cert", envvar="RANGELOG_TLS_CERT", metavar="FILE", help="Else RANGELOG_TLS_CERT: the process's own will do."
)
@click.option("--key", envvar="RANGELOG_TLS_KEY", metavar="FILE", help="Else RANGELOG_TLS_KEY.")
def healthcheck(question: str, metrics: str, timeout: float, ca: str | None, cert: str | None, key: str | None) -> int:
    """Ask a process whether it is live or ready: a probe for containers. The exit code is the answer: 0 yes, 1 no.

    With TLS and a server's own certificate only the very process of that certificate counts.

    \b
    Examples:
      rangelog healthcheck ready
      rangelog healthcheck live --metrics 127.0.0.1:9181
    """
    from rangelog_cli.healthcheck import ask
    from rangelog_core.net.tls import TlsConfig

    click.echo(ask(question, metrics, TlsConfig.of_paths(ca, cert, key), timeout))
    return 0


cli.add_command(certs)
cli.add_command(files)
cli.add_command(local)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes one line on stderr."""
    from rangelog_core.errors import RangelogError

    try:
        result = cli.main(args=arguments, prog_name="rangelog", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "rangelog"
        return _fail(f"{error.format_message().rstrip('.')}: see {command} --help", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted: nothing is left running", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit's flush is quiet as well
        return 1
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            raise
        return _fail(_one_line(error, known=isinstance(error, RangelogError)), 1)


def _one_line(error: Exception, *, known: bool) -> str:
    message = getattr(error, "message", "") if known else ""  # it may name the line of the input, unlike `str`
    text = " ".join((message or str(error)).split())
    if known:
        return text
    if isinstance(error, ImportError):
        return f"an optional part is missing ({text}): install it with pip install 'rangelog[all]'"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}: check the path, its permissions and the free space"
    return f"internal error {type(error).__name__} ({text}): set {DEBUG_ENV}=1 for the details and report it"


def _fail(text: str, code: int) -> int:
    click.echo(f"rangelog: {text}", err=True)
    return code


def main() -> None:
    """Entry point."""
    follow_parent()
    sys.exit(run())
