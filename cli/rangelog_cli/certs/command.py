"""`rangelog certs`: make an authority, issue certificates, show one."""

from __future__ import annotations

from pathlib import Path

import click

_DIRECTORY = click.option(
    "--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default=Path("rangelog-certs"),
    show_default=True, help="The directory of the authority.",
)  # fmt: skip


@click.group()
def certs() -> None:
    """Make certificates for a cluster with TLS: a small authority in a directory.

    Every process gets ca.pem and its own pair; ca.key stays where it was made. Certificates of any other authority serve as
    well: docs/security.md says what they must name.

    \b
    Example:
      rangelog certs init
      rangelog certs issue pd pd1
      rangelog certs issue range-server rs1
      rangelog certs issue admin alice
      pdctl --ca rangelog-certs/ca.pem --cert rangelog-certs/admin-alice.pem --key rangelog-certs/admin-alice.key cluster status
    """


@certs.command()
@_DIRECTORY
@click.option("--days", type=click.IntRange(1, 36_500), default=3_650, show_default=True, help="How long it is valid.")
def init(directory: Path, days: int) -> None:
    """Make an authority."""
    from rangelog_cli.certs.authority import Authority

    Authority.create(directory, days=days)
    click.echo(f"{directory}/ca.pem  for every process")
    click.echo(f"{directory}/ca.key  for nobody: keep it away from the cluster")


@certs.command()
@click.argument("role")
@click.argument("name")
@_DIRECTORY
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where the files go.  [default: --dir]")
@click.option(
    "--host", "hosts", multiple=True, help="Name or address by which curl or a browser reaches it; may be repeated."
)
@click.option("--days", type=click.IntRange(1, 36_500), default=90, show_default=True, help="How long it is valid.")
def issue(role: str, name: str, directory: Path, out: Path | None, hosts: tuple[str, ...], days: int) -> None:
    """Issue a certificate for a process or a person, or issue it again.

    ROLE: pd, range-server, broker, client or admin. NAME: of the process, as in its settings; '*' for all of the role.
    Processes that run take new files within seconds, without a restart.

    \b
    Examples:
      rangelog certs issue range-server rs1
      rangelog certs issue broker broker1 --host broker1.example.org
      rangelog certs issue client orders-service --days 30
    """
    from rangelog_cli.certs.authority import Authority, parse_principal

    principal = parse_principal(role, name)
    made = Authority.open(directory).issue(principal, out or directory, hosts=hosts, days=days)
    for path in (made.ca, made.cert, made.key):
        click.echo(path)


@certs.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
def show(path: Path) -> None:
    """Show whom a certificate is of, who issued it, and until when it is valid."""
    from rangelog_cli.certs.authority import describe

    for key, value in describe(path).items():
        click.echo(f"{key + ':':<15}{value}")


@certs.command("secrets")
@click.option(
    "--plan", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A file of the chart."
)
def secrets(path: Path) -> None:
    """Keep the certificates of a cluster on Kubernetes, in Secrets: for the job of the chart, in a pod.

    Makes the authority and what is missing, renews what is about to expire, and leaves alone what is good. The Secrets must be
    there, empty at first; the pod's service account needs get and update on them, and nothing else. docs/kubernetes.md.

    \b
    Example:
      rangelog certs secrets --plan /etc/rangelog/certificates/plan.json
    """
    from rangelog_cli.certs.kept_secrets import keep_secrets
    from rangelog_cli.certs.kubernetes_api import KubernetesSecrets
    from rangelog_cli.certs.secret_plan import PLAN_BYTES_MAX, parse_plan
    from rangelog_core.errors import ConfigInvalid

    try:
        with path.open("rb") as file:
            plan = parse_plan(file.read(PLAN_BYTES_MAX + 1))
    except OSError as error:
        raise ConfigInvalid(f"the plan {path} cannot be read: {error.strerror}") from error
    changed = keep_secrets(KubernetesSecrets.of_pod(), plan, click.echo)
    click.echo(f"{changed} of {len(plan.certificates) + 1} Secrets changed")
