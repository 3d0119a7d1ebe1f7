"""The entry point: `pdctl [OPTIONS] NOUN VERB …`."""

from __future__ import annotations

import math

import click

from pdctl import tasks
from pdctl.acl import acl
from pdctl.audit import audit
from pdctl.cluster import cluster, task
from pdctl.cursors import cursor
from pdctl.doctor.doctor import doctor
from pdctl.groups.checkpoint import checkpoint
from pdctl.groups.group import group
from pdctl.inspection.locate import locate
from pdctl.inspection.verify import verify
from pdctl.logs.command import logs
from pdctl.manifests import manifest, streams
from pdctl.members.pd import pd_group
from pdctl.objects import object_group
from pdctl.ranges import range_group
from pdctl.repairs import repair
from pdctl.restore import restore
from pdctl.scrub import scrub
from pdctl.server_operations import VERBS as SERVER_VERBS
from pdctl.servers import server
from pdctl.session import PdctlGroup, Session
from pdctl.set_tier import set_tier
from pdctl.streams import stream
from pdctl.tables.table import table
from pdctl.tokens import token as token_group
from pdctl.top import top
from pdctl.topics.broker import broker
from pdctl.topics.namespace import namespace
from pdctl.topics.shard import shard
from pdctl.topics.topic import topic
from pdctl.transactions.transaction import transaction
from pdctl.upgrade.upgrade import upgrade

_SHELLS = {
    "bash": 'eval "$(_PDCTL_COMPLETE=bash_source pdctl)"',
    "zsh": 'eval "$(_PDCTL_COMPLETE=zsh_source pdctl)"',
    "fish": "_PDCTL_COMPLETE=fish_source pdctl | source",
}


def _number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Parse a number of seconds. Bounds alone would allow `nan`."""
    if math.isnan(value):
        raise click.BadParameter("not a number of seconds")
    return value


@click.group(cls=PdctlGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--pd",
    "endpoints",
    envvar="RANGELOG_PD",
    metavar="HOST:PORT,…",
    help="Placement drivers. Else RANGELOG_PD, else the context of `rangelog local`.",
)
@click.option("--token", envvar="RANGELOG_TOKEN", help="Bearer token. Else RANGELOG_TOKEN.")
@click.option(
    "--token-file",
    envvar="RANGELOG_TOKEN_FILE",
    metavar="FILE",
    help="A file with the token; it is not seen in lists of processes then. Else RANGELOG_TOKEN_FILE.",
)
@click.option(
    "--ca",
    envvar="RANGELOG_TLS_CA",
    metavar="FILE",
    help="The cluster's authority; turns TLS on. Else RANGELOG_TLS_CA.",
)
@click.option(
    "--cert",
    envvar="RANGELOG_TLS_CERT",
    metavar="FILE",
    help="Your certificate, of role admin. Else RANGELOG_TLS_CERT.",
)
@click.option("--key", envvar="RANGELOG_TLS_KEY", metavar="FILE", help="Its private key. Else RANGELOG_TLS_KEY.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, 3600, min_open=True),
    default=10.0,
    show_default=True,
    callback=_number,
    help="Seconds to wait for an answer.",
)
@click.version_option(package_name="rangelog")
@click.pass_context
def main(
    context: click.Context,
    endpoints: str | None,
    token: str | None,
    token_file: str | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    timeout_s: float,
) -> None:
    """Administer a rangelog cluster.

    \b
    Examples:
      pdctl cluster status
      pdctl stream create flights --retention 30d
      echo hello | pdctl stream append flights
      pdctl stream read flights --limit 10
      pdctl range list flights -o json
      pdctl topic create clicks --shards 4
      pdctl topic consume clicks --follow

    Exit codes: 0 ok, 1 failed or degraded, 2 usage, 3 not found, 4 unavailable, 5 precondition (exists, fenced).
    """  # \b is click's
    of_flags = click.core.ParameterSource.COMMANDLINE
    sources = [context.get_parameter_source(each) for each in ("token", "token_file")]
    if token_file and sources[1] is of_flags and sources[0] is not of_flags:
        token = None  # a flag goes before the environment
    context.obj = Session(endpoints, token, ca, cert, key, timeout_s, token_file)


@main.command()
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
def completion(shell: str) -> None:
    """Print the line that enables completion.

    \b
    Example:
      pdctl completion bash >> ~/.bashrc
    """
    click.echo(_SHELLS[shell])


_NOUNS = (
    cluster, pd_group, server, stream, cursor, range_group, object_group, namespace, topic, shard, broker, group, checkpoint,
    table, transaction, task, repair, doctor, locate, verify, top, logs, acl, token_group, audit,
    upgrade,
)  # fmt: skip
cluster.add_command(set_tier)
for _verb in (manifest, streams, scrub):
    object_group.add_command(_verb)
for _verb in SERVER_VERBS:
    server.add_command(_verb)
for _verb in (tasks.show, tasks.cancel, tasks.wait):
    task.add_command(_verb)
for _noun in (*_NOUNS, restore):
    main.add_command(_noun)

if __name__ == "__main__":
    main()
