"""`pdctl doctor`: examines what a cluster stands on, and says what to do."""

from __future__ import annotations

import click

from pdctl.doctor.cluster import cluster
from pdctl.doctor.s3 import s3


@click.group()
def doctor() -> None:
    """Examine what the cluster stands on, and say what to do."""


doctor.add_command(cluster)
doctor.add_command(s3)
