"""The entry point: `pdctl [OPTIONS] NOUN VERB …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from pdctl import tasks
from pdctl.acl import acl
from pdctl.audit import audit
from pdctl.cluster import cluster, task
from pdctl.completing import complete_names
from pdctl.contexts import context_group
from pdctl.cursors import cursor
from pdctl.doctor.doctor import doctor
from pdctl.encryption import encryption
from pdctl.everywhere import cluster_options, spread
from pdctl.groups.checkpoint import checkpoint
from pdctl.groups.group import group
from pdctl.inspection.locate import locate
from pdctl.inspection.verify import verify
from pdctl.logs.command import logs
from pdctl.manifests import manifest, streams
from pdctl.members.pd import pd_group
from pdctl.objects import object_group
from pdctl.quotas import quota
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


def _with_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(cluster_options()):
        names = [*option.opts, option.name or ""]
        command = click.option(
            *names, type=option.type, envvar=option.envvar, metavar=option.metavar, help=option.help,
            default=option.default, show_default=option.show_default, callback=option.callback,
        )(command)  # fmt: skip
    return command


@click.group(cls=PdctlGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@_with_cluster_options
@click.version_option(package_name="rangelog")
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Administer a rangelog cluster. The options below may stand before the noun or behind the verb.

    \b
    Examples:
      pdctl cluster status
      pdctl stream create flights --retention 30d
      echo hello | pdctl stream append flights
      pdctl stream read flights --limit 10
      pdctl range list flights -o json
      pdctl stream ls --context prod --watch
      pdctl topic create clicks --shards 4
      pdctl topic consume clicks --follow

    Exit codes: 0 ok, 1 failed or degraded, 2 usage, 3 not found, 4 unavailable, 5 precondition (exists, fenced).
    """  # \b is click's
    if options["context_name"] is not None and options["endpoints"] is not None:
        named, given = (
            context.get_parameter_source(each) is ParameterSource.COMMANDLINE for each in ("context_name", "endpoints")
        )
        if named and given:
            raise click.UsageError("--context and --pd both name a cluster: give one of them")
        options["endpoints" if named else "context_name"] = (
            None  # what is typed beats the environment, and --pd a context
        )
    file_given, token_given = (
        context.get_parameter_source(each) is ParameterSource.COMMANDLINE for each in ("token_file", "token")
    )
    if file_given and not token_given:
        options["token"] = None
    context.obj = Session(**options)


@main.command()
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
def completion(shell: str) -> None:
    """Print the line that enables completion: of nouns, verbs, options, and of names, for which the cluster is asked.

    \b
    Example:
      pdctl completion bash >> ~/.bashrc
    """
    click.echo(_SHELLS[shell])


_NOUNS = (
    cluster, pd_group, server, stream, cursor, range_group, object_group, namespace, topic, shard, broker, group, checkpoint,
    table, transaction, task, repair, doctor, locate, verify, top, logs, acl, token_group, quota, audit,
    upgrade, context_group, encryption,
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
spread(main)
complete_names(main)

if __name__ == "__main__":
    main()
