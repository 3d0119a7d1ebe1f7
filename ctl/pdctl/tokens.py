"""`pdctl token …`: tokens, which clients show in place of a certificate."""

from __future__ import annotations

import os
import time
import uuid
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_list, emit_one, field
from pdctl.session import NothingFound, Session, output_option, session_of
from pdctl.units import Duration, show_time
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net.pages import pages_by_token

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import rights_pb2
    from rangelog_proto.v1 import tokens_pb2 as pb

_COLUMNS = [
    field("NAME", "name"),
    field("ID", "id"),
    field("PRINCIPAL", "principal"),
    field("STATE", "state"),
    field("EXPIRES", "expires_ms", show_time),
    field("ONLY", "only", "; ".join),
]
_name = click.argument("name", metavar="NAME|ID")


@click.group("token")
def token() -> None:
    """Tokens: what clients show in place of a certificate.

    A token stands for a client of the same rights as a certificate of that name, or for less of them, until it expires or is
    revoked. Servers accept tokens where their setting `tokens` is on.
    """


@token.command()
@click.argument("name")
@click.option(
    "--for", "principal", metavar="client:NAME", help="Whom the token stands for. Else client:NAME of its own name."
)
@click.option(
    "--expires",
    "lifetime_ms",
    type=Duration(),
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="How long it counts: 1m to 366d.",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="'VERB[,VERB…] KIND NAME|PREFIX*'",
    help="Bind the token to less than its client may do; several times for several resources.",
)
@click.option("--out", "path", metavar="FILE", help="Write the token to a new file, which its owner alone can read.")
@output_option
@session_of
def create(
    session: Session,
    name: str,
    principal: str | None,
    lifetime_ms: int,
    only: tuple[str, ...],
    path: str | None,
    output: str,
) -> None:
    """Create a token, and print it: it is kept nowhere, so it is shown this once.

    \b
    Examples:
      pdctl token create orders --out orders.token
      pdctl token create ci --for client:orders --expires 2h
      pdctl token create report --for client:billing --only 'read topic shop/invoices-*' --only 'read group billing'
    """
    from rangelog_core.tokens import check_bounds
    from rangelog_proto.v1 import tokens_pb2 as pb

    bounds = [_bound(each) for each in only]
    try:
        check_bounds(bounds)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error
    request = pb.CreateTokenRequest(
        request_id=uuid.uuid4().hex, name=name, principal=principal or f"client:{name}", only=bounds,
        lifetime_ms=lifetime_ms,
    )  # fmt: skip

    file = _new_file(path) if path is not None else None
    try:
        answer = session.call(request, pb.CreateTokenResponse)
    except BaseException:
        if file is not None and path is not None:
            os.close(file)
            os.unlink(path)
        raise
    view = _view(answer.row)
    if file is not None:
        with os.fdopen(file, "w") as opened:
            opened.write(f"{answer.text}\n")
        emit_one(view, output, _COLUMNS)
    elif output == "table":
        click.echo(answer.text)
        click.echo(
            f"token {answer.row.name} ({answer.row.token_id}) of {answer.row.principal} until "
            f"{show_time(answer.row.expires_ms)}; it is not shown again",
            err=True,
        )
    else:
        emit_data(view | {"token": answer.text}, output)


@token.command("list")
@output_option
@session_of
def list_tokens(session: Session, output: str) -> None:
    """List the tokens of this cluster: those that count, were revoked, or have expired within a day.

    \b
    Examples:
      pdctl token list
      pdctl token list -o json
    """
    rows = _rows(session, "")
    rows.sort(key=lambda each: (each.name, each.created_ms))
    emit_list([_view(each) for each in rows], output, _COLUMNS, empty="no tokens: `pdctl token create` makes one")


@token.command()
@_name
@output_option
@session_of
def show(session: Session, name: str, output: str) -> None:
    """Show a token by its name or id, without its text.

    \b
    Example:
      pdctl token show orders
    """
    rows = _rows(session, name)
    if not rows:
        raise NothingFound(f"there is no token {name!r}: see `pdctl token list`")
    live = max(rows, key=lambda each: (not each.revoked_ms, each.created_ms))
    more = [
        field("CREATED", "created_ms", show_time),
        field("REVOKED", "revoked_ms", show_time),
        field("KEY", "key_id"),
    ]
    emit_one(_view(live), output, [*_COLUMNS, *more])


@token.command()
@_name
@output_option
@session_of
def revoke(session: Session, name: str, output: str) -> None:
    """Revoke a token by its name or id. Servers refuse it from their next heartbeat on, and end its connections.

    \b
    Example:
      pdctl token revoke orders
    """
    from rangelog_proto.v1 import tokens_pb2 as pb

    request = pb.RevokeTokenRequest(request_id=uuid.uuid4().hex, name=name)
    emit_one(_view(session.call(request, pb.RevokeTokenResponse).row), output, _COLUMNS)


def _rows(session: Session, name: str) -> list[pb.TokenRow]:
    from rangelog_proto.v1 import tokens_pb2 as pb

    async def work(pd: PdClient) -> list[pb.TokenRow]:
        pages = pages_by_token(pd, pb.ListTokensRequest(name=name), pb.ListTokensResponse, session.timeout_s)
        return [each async for page in pages for each in page.rows]

    return session.with_pd(work)


def _bound(text: str) -> rights_pb2.AccessRule:
    """Return what one --only says. Raises UsageError."""
    from rangelog_core.rights import EVERY_CLIENT, KINDS, VERBS, wire_verbs
    from rangelog_proto.v1 import rights_pb2

    words = text.split()
    if len(words) != 3:
        raise click.UsageError(
            f"--only is 'VERB[,VERB…] KIND NAME', such as 'read stream orders-*', not {text[:100]!r}"
        )
    verbs, kind, name = words[0].split(","), words[1], words[2]
    if kind not in KINDS:
        raise click.UsageError(f"{kind[:40]!r} is no kind of --only: take one of {', '.join(KINDS)}")
    unknown = [each for each in verbs if each not in VERBS]
    if unknown:
        raise click.UsageError(f"{unknown[0][:40]!r} is no verb of --only: take some of {', '.join(VERBS)}")
    wired = wire_verbs(reduce(or_, (VERBS[each] for each in verbs)))
    return rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=KINDS[kind], name=name, verbs=wired)


def _new_file(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigInvalid(f"cannot write the token to {path}: {error.strerror}") from error


def _view(row: pb.TokenRow) -> dict[str, Any]:
    from rangelog_core.rights import KIND_NAMES, verb_names, verbs_of

    expired = row.expires_ms <= time.time() * 1000
    return {
        "name": row.name,
        "id": row.token_id,
        "principal": row.principal,
        "state": "revoked" if row.revoked_ms else "expired" if expired else "valid",
        "only": [
            f"{','.join(verb_names(verbs_of(each.verbs)))} {KIND_NAMES[each.kind]} {each.name}" for each in row.only
        ],
        "created_ms": row.created_ms,
        "expires_ms": row.expires_ms,
        "revoked_ms": row.revoked_ms,
        "key_id": row.key_id,
    }
