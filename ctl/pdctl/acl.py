"""`pdctl acl …`: what clients may do."""

from __future__ import annotations

import uuid
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_done, emit_list, emit_one, field
from pdctl.session import EXIT_FAILED, Session, confirm, output_option, session_of
from rangelog_core.errors import InvalidArgument
from rangelog_core.net.pages import pages_by_token

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import rights_pb2

_KINDS = ("stream", "topic", "group", "namespace", "transaction")
_VERBS = ("append", "read", "seal", "trim", "admin")
_COLUMNS = [
    field("PRINCIPAL", "principal"),
    field("VERBS", "verbs", ",".join),
    field("KIND", "kind"),
    field("NAME", "name"),
]


class _Verbs(click.ParamType["tuple[str, ...]"]):
    """Verbs with commas between them."""

    name = "verbs"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Parse."""
        verbs = tuple(str(value).split(","))
        unknown = [each for each in verbs if each not in _VERBS]
        if unknown:
            self.fail(f"{unknown[0]!r} is no verb: take some of {', '.join(_VERBS)}", param, ctx)
        return verbs


_principal = click.argument("principal", metavar="client:NAME|*")
_verbs = click.argument("verbs", type=_Verbs(), metavar="VERB[,VERB…]")
_kind = click.argument("kind", type=click.Choice(_KINDS))
_name = click.argument("name", metavar="NAME|PREFIX*")


@click.group()
def acl() -> None:
    """Rights: what clients may do to streams, topics, groups and namespaces.

    Rules give verbs to a client by the name in its certificate; they count once they are enforced.
    """


@acl.command()
@_principal
@_verbs
@_kind
@_name
@output_option
@session_of
def grant(session: Session, principal: str, verbs: tuple[str, ...], kind: str, name: str, output: str) -> None:
    """Give verbs on a resource, or on all of a prefix. A topic is named by NAMESPACE/NAME.

    \b
    Examples:
      pdctl acl grant client:orders append,read stream orders
      pdctl acl grant client:billing read topic 'shop/invoices-*'
      pdctl acl grant client:billing read group billing
      pdctl acl grant client:shop append,read,admin namespace shop
      pdctl acl grant '*' read stream 'public-*'
    """
    from rangelog_proto.v1 import rights_pb2 as pb

    rule = _rule(principal, verbs, kind, name)

    request = pb.GrantRightsRequest(request_id=uuid.uuid4().hex, rule=rule)
    emit_one(_view(session.call(request, pb.GrantRightsResponse).rule), output, _COLUMNS)


@acl.command()
@_principal
@_verbs
@_kind
@_name
@output_option
@session_of
def revoke(session: Session, principal: str, verbs: tuple[str, ...], kind: str, name: str, output: str) -> None:
    """Take verbs back from a rule, which is named as it was given. Servers know within a heartbeat.

    \b
    Examples:
      pdctl acl revoke client:orders append stream orders
      pdctl acl revoke client:billing read topic 'shop/invoices-*'
    """
    from rangelog_proto.v1 import rights_pb2 as pb

    rule = _rule(principal, verbs, kind, name)

    request = pb.RevokeRightsRequest(request_id=uuid.uuid4().hex, rule=rule)
    emit_one(_view(session.call(request, pb.RevokeRightsResponse).rule), output, _COLUMNS)


@acl.command("list")
@click.argument("principal", metavar="[client:NAME|*]", default="")
@output_option
@session_of
def list_rules(session: Session, principal: str, output: str) -> None:
    """List the rules, of one client or of all.

    \b
    Examples:
      pdctl acl list
      pdctl acl list client:orders -o json
    """
    from rangelog_proto.v1 import rights_pb2 as pb

    async def work(pd: PdClient) -> tuple[list[pb.AccessRule], bool]:
        rules: list[pb.AccessRule] = []
        enforced = False
        request = pb.ListRightsRequest(principal=principal)
        async for page in pages_by_token(pd, request, pb.ListRightsResponse, session.timeout_s):
            rules += page.rules
            enforced = page.enforced
        return rules, enforced

    rules, enforced = session.with_pd(work)
    emit_list([_view(each) for each in rules], output, _COLUMNS, empty="no rules: `pdctl acl grant` makes them")
    if not enforced:
        click.echo("rights are not enforced: every client may do everything (`pdctl acl enforce on`)", err=True)


@acl.command()
@_principal
@click.argument("verb", type=click.Choice(_VERBS))
@_kind
@_name
@output_option
@session_of
def test(session: Session, principal: str, verb: str, kind: str, name: str, output: str) -> None:
    """Say whether a client may do something by the rules, whether they are enforced or not. Exit code 1: it may not.

    \b
    Example:
      pdctl acl test client:orders append stream orders
    """
    from rangelog_core.rights import KINDS, VERBS, verbs_of
    from rangelog_proto.v1 import rights_pb2 as pb

    resource = pb.AccessResource(kind=KINDS[kind], name=name)

    request = pb.CheckRightsRequest(principal=principal, resources=[resource])
    answer = session.call(request, pb.CheckRightsResponse)
    allowed = bool(verbs_of(answer.grants[0].verbs) & VERBS[verb])
    note = "" if answer.enforced else " (rights are not enforced: every client may do everything)"
    if output == "table":
        click.echo(f"{principal} {'may' if allowed else 'may not'} {verb} {kind} {name}{note}")
    else:
        asked = {"principal": principal, "verb": verb, "kind": kind, "name": name}
        emit_data(asked | {"allowed": allowed, "enforced": answer.enforced}, output)
    if not allowed:
        raise click.exceptions.Exit(EXIT_FAILED)


@acl.command()
@click.argument("switch", type=click.Choice(["on", "off"]), metavar="on|off")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def enforce(session: Session, switch: str, yes: bool, output: str) -> None:
    """Turn the enforcement of rights on or off. With it, clients need a rule for each verb; administrators and servers are not
    limited.

    \b
    Examples:
      pdctl acl list && pdctl acl enforce on
      pdctl acl enforce off --yes
    """
    from rangelog_proto.v1 import rights_pb2 as pb

    on = switch == "on"
    what = "From now on clients may do only what rules give" if on else "From now on every client may do everything"
    confirm("rights", what, yes=yes)

    request = pb.EnforceRightsRequest(request_id=uuid.uuid4().hex, enforced=on)
    answer = session.call(request, pb.EnforceRightsResponse)
    said = "rights are enforced" if on else "rights are not enforced"
    emit_done(said, {"enforced": on, "version": answer.version}, output)


def _rule(principal: str, verbs: tuple[str, ...], kind: str, name: str) -> rights_pb2.AccessRule:
    """Return a rule. Raises InvalidArgument."""
    from rangelog_core.rights import KINDS, VERBS, check_rule, wire_verbs
    from rangelog_proto.v1 import rights_pb2 as pb

    wired = wire_verbs(reduce(or_, (VERBS[each] for each in verbs)))
    rule = pb.AccessRule(principal=principal, kind=KINDS[kind], name=name, verbs=wired)
    try:
        check_rule(rule)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error
    return rule


def _view(rule: rights_pb2.AccessRule) -> dict[str, Any]:
    from rangelog_core.rights import KIND_NAMES, verb_names, verbs_of

    names = verb_names(verbs_of(rule.verbs))
    return {"principal": rule.principal, "verbs": names, "kind": KIND_NAMES[rule.kind], "name": rule.name}
