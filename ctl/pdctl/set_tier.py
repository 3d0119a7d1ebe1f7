"""`pdctl cluster set-tier`: another store for the objects to come."""

from __future__ import annotations

import uuid

import click

from pdctl.output import emit_one, field
from pdctl.session import Session, confirm, output_option, session_of


@click.command("set-tier")
@click.argument("url")
@click.option("--moved", is_flag=True, help="All objects were copied there: forget the former stores.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def set_tier(session: Session, url: str, moved: bool, yes: bool, output: str) -> None:
    """Store objects at another URL from now on; those that are there stay readable where they are.

    The leading placement driver checks the new store first, where it can, and changes nothing if that fails; the directory of a
    file:// URL must be there. Range servers and readers need access to all stores, by the same URLs: a tier_url of their own
    does not count any more. With --moved former stores are not used again: copy all objects first.

    \b
    Examples:
      pdctl cluster set-tier 's3://new-bucket/logs?region=eu-central-1'
      pdctl cluster set-tier s3://copied/logs --moved --yes
    """  # \b is click's
    what = "objects go to another store from now on" + (", and are read only from there" if moved else "")
    confirm("tier", what, yes=yes)
    from rangelog_proto.v1 import tier_pb2

    request = tier_pb2.SetTierRequest(request_id=uuid.uuid4().hex, url=url, moved=moved)
    answer = session.call(request, tier_pb2.SetTierResponse)
    emit_one({"tier_url": answer.tier_url}, output, [field("TIER", "tier_url")])
