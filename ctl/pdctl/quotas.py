"""`pdctl quota …`: how much clients, and all clients of a name prefix, may append, read and call."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_list, emit_one, field
from pdctl.session import NothingFound, Session, output_option, session_of
from pdctl.units import Size, quoted, show_bytes

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import quotas_pb2 as pb


def _rate(value: Any) -> str:
    return f"{show_bytes(value)}/s" if value else "-"


_COLUMNS = [
    field("PRINCIPAL", "principal", lambda value: value or "-"),
    field("PREFIX", "prefix", lambda value: value or "-"),
    field("APPEND", "append_bytes_per_s", _rate),
    field("READ", "read_bytes_per_s", _rate),
    field("CALLS", "calls_per_s", lambda value: f"{value}/s" if value else "-"),
]


class _Rate(Size):
    """Bytes per second; `none`: no limit."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse."""
        text = str(value).strip().lower()
        if text == "none":
            return 0
        size = super().convert(text.removesuffix("/s"), param, ctx)
        if not size:
            self.fail(
                f"{quoted(value)} would let nothing through: write for example 10MB, or none for no limit", param, ctx
            )
        return size


class _Calls(click.ParamType[int]):
    """Calls per second; `none`: no limit."""

    name = "calls"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse."""
        text = str(value).strip().lower()
        if text == "none":
            return 0
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            self.fail(f"{quoted(value)} is no number of calls: write for example 100, or none for no limit", param, ctx)
        return int(text)


def _of(command: Any) -> Any:
    """Add the options that name a quota."""
    command = click.option(
        "--prefix", metavar="PREFIX", help="All streams whose names begin so; NAMESPACE/ for all topics of a namespace."
    )(command)
    return click.option(
        "--principal", metavar="NAME|*", help="A client; * is each client that has no quota of its own."
    )(command)


@click.group("quota")
def quota() -> None:
    """Quotas: who is over one is held off, and gets no error. Each server counts by itself.

    A quota is of a client or of a prefix of names. Where several count, the smallest decides.
    """


@quota.command("set")
@_of
@click.option(
    "--append-bytes-per-s", type=_Rate(), metavar="SIZE", help="Bytes to append, such as 10MB; none: no limit."
)
@click.option("--read-bytes-per-s", type=_Rate(), metavar="SIZE", help="Bytes to read; none: no limit.")
@click.option(
    "--calls-per-s", type=_Calls(), metavar="N", help="Calls on placement drivers, brokers and REST; none: no limit."
)
@output_option
@session_of
def set_quota(
    session: Session,
    principal: str | None,
    prefix: str | None,
    append_bytes_per_s: int | None,
    read_bytes_per_s: int | None,
    calls_per_s: int | None,
    output: str,
) -> None:
    """Set rates of a quota, which may be new. Rates that are not given stay. Servers follow with their next heartbeat.

    \b
    Examples:
      pdctl quota set --principal alice --append-bytes-per-s 10MB --read-bytes-per-s 50MB
      pdctl quota set --principal '*' --calls-per-s 100
      pdctl quota set --prefix orders/ --append-bytes-per-s 20MB
    """
    from rangelog_proto.v1 import quotas_pb2 as pb

    named, begins = _key(principal, prefix)
    if append_bytes_per_s is None and read_bytes_per_s is None and calls_per_s is None:
        raise click.UsageError("give a rate: --append-bytes-per-s, --read-bytes-per-s or --calls-per-s")
    request = pb.SetQuotaRequest(
        request_id=uuid.uuid4().hex,
        principal=named,
        prefix=begins,
        append_bytes_per_s=append_bytes_per_s,
        read_bytes_per_s=read_bytes_per_s,
        calls_per_s=calls_per_s,
    )

    emit_one(_view(session.call(request, pb.SetQuotaResponse).quota), output, _COLUMNS)


@quota.command("list")
@output_option
@session_of
def list_quotas(session: Session, output: str) -> None:
    """List all quotas.

    \b
    Examples:
      pdctl quota list
      pdctl quota list -o json
    """
    emit_list([_view(each) for each in _all(session)], output, _COLUMNS, empty="no quotas: nobody is held off")


@quota.command()
@_of
@output_option
@session_of
def show(session: Session, principal: str | None, prefix: str | None, output: str) -> None:
    """Show the quota of a client or of a prefix.

    \b
    Examples:
      pdctl quota show --principal alice
      pdctl quota show --prefix orders/
    """
    key = _key(principal, prefix)
    for each in _all(session):
        if (each.principal, each.prefix) == key:
            emit_one(_view(each), output, _COLUMNS)
            return
    raise NothingFound(f"{quoted(key[0] or key[1])} has no quota of its own: see `pdctl quota list`")


@quota.command()
@_of
@output_option
@session_of
def remove(session: Session, principal: str | None, prefix: str | None, output: str) -> None:
    """Remove a quota, and show what it was. Servers follow with their next heartbeat.

    \b
    Example:
      pdctl quota remove --principal alice
    """
    from rangelog_proto.v1 import quotas_pb2 as pb

    named, begins = _key(principal, prefix)
    request = pb.RemoveQuotaRequest(request_id=uuid.uuid4().hex, principal=named, prefix=begins)

    emit_one(_view(session.call(request, pb.RemoveQuotaResponse).quota), output, _COLUMNS)


def _key(principal: str | None, prefix: str | None) -> tuple[str, str]:
    """Return principal and prefix as the state has them. Raises UsageError."""
    from rangelog_core.errors import InvalidArgument
    from rangelog_core.net.principals import Role
    from rangelog_core.quotas import check_key
    from rangelog_core.rights import CLIENT_START, EVERY_CLIENT

    if principal and principal != EVERY_CLIENT and principal.partition(":")[0] not in set(Role):
        principal = CLIENT_START + principal
    try:
        check_key(principal or "", prefix or "")
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error
    return principal or "", prefix or ""


def _all(session: Session) -> list[pb.Quota]:
    from rangelog_proto.v1 import quotas_pb2 as pb

    async def work(pd: PdClient) -> list[pb.Quota]:
        answer = await pd.call(pb.ListQuotasRequest(), pb.ListQuotasResponse, timeout_s=session.timeout_s)
        return list(answer.quotas)

    return session.with_pd(work)


def _view(row: pb.Quota) -> dict[str, Any]:
    return {
        "principal": row.principal,
        "prefix": row.prefix,
        "append_bytes_per_s": row.append_bytes_per_s,
        "read_bytes_per_s": row.read_bytes_per_s,
        "calls_per_s": row.calls_per_s,
    }
