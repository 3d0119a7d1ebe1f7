"""`pdctl doctor s3`: whether a bucket can be the tier, from this machine and with its credentials."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from pdctl.output import emit_data, printable
from pdctl.session import EXIT_FAILED, Session, output_option, session_of
from pdctl.units import Size
from rangelog_core.errors import MissingExtra, PreconditionFailed

_CHECK_WIDTH = 16


@click.command()
@click.argument("url", required=False)
@click.option(
    "--size", type=Size(), default="8MiB", show_default=True, help="Stored and read to measure; 0: not at all."
)
@output_option
@session_of
def s3(session: Session, url: str | None, size: int, output: str) -> None:
    """Examine an S3 bucket as a tier; without URL, the cluster's.

    Credentials, endpoint, bucket, clock, each right that is needed, conditional puts, latency and speed: a line each, with what
    to do where it fails. The objects stored for this are deleted again. The exit code is 1 when something failed.

    \b
    Examples:
      pdctl doctor s3
      pdctl doctor s3 's3://my-bucket/logs?region=eu-central-1'
      pdctl doctor s3 's3://my-bucket/logs?endpoint=http://127.0.0.1:9000' -o json
    """  # \b is click's
    try:
        from rangelog_tier.s3_examination import FAILED, examine
    except ImportError as error:
        raise MissingExtra("an s3:// tier needs boto3: pip install 'rangelog[tier]'") from error
    found: list[dict[str, Any]] = []
    for each in examine(url if url is not None else _cluster_tier(session), size):
        found.append(dataclasses.asdict(each))
        if output == "table":
            click.echo(f"{each.check:<{_CHECK_WIDTH}}{each.state:<9}{printable(each.detail)}")
    if output != "table":
        emit_data(found, output)
    if any(each["state"] == FAILED for each in found):
        sys.exit(EXIT_FAILED)


def _cluster_tier(session: Session) -> str:
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.DescribeClusterRequest()
    url = session.with_pd(
        lambda pd: pd.call(request, pd_pb2.DescribeClusterResponse, timeout_s=session.timeout_s)
    ).tier_url
    if not url:
        raise PreconditionFailed("this cluster has no tier: give the URL of a bucket")
    return url
