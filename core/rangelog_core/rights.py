"""Rights of clients: verbs on resources, rules that give them, and the verbs that result for one client. No I/O.

What holds: what no rule gives is refused; a rule's name is that of one resource, or a prefix and `*`; a namespace's rule is one
for all topics in it. The cost of a question does not depend on the number of rules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from enum import IntFlag

from rangelog_core.errors import InvalidArgument, RightMissing
from rangelog_core.ids import check_name
from rangelog_core.limits import NAME_LENGTH_MAX
from rangelog_proto.v1 import rights_pb2 as pb

EVERY_CLIENT = "*"
CLIENT_START = "client:"
PREFIX_END = "*"
RIGHTS_FORMAT = "rights"
"""What range servers register beside the formats they read: they ask for rights."""
RULES_MAX = 10_000
RULES_OF_PRINCIPAL_MAX = 1_000
SUBJECT_SEPARATOR = ":"
"""Between an issuer's prefix and its subject, in the name of a client. No certificate's name has one, so they never collide."""
SUBJECT_LENGTH_MAX = 200
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=|/-]*\Z")


class Verb(IntFlag):
    """The kinds of use of a resource."""

    APPEND = 1
    READ = 2
    SEAL = 4
    TRIM = 8
    ADMIN = 16


NONE = Verb(0)
ANY = Verb.APPEND | Verb.READ | Verb.SEAL | Verb.TRIM | Verb.ADMIN
VERBS = {each.name.lower(): each for each in Verb if each.name}
KINDS: dict[str, pb.ResourceKind] = {
    "stream": pb.RESOURCE_KIND_STREAM,
    "topic": pb.RESOURCE_KIND_TOPIC,
    "group": pb.RESOURCE_KIND_GROUP,
    "namespace": pb.RESOURCE_KIND_NAMESPACE,
    "transaction": pb.RESOURCE_KIND_TRANSACTION,
}
KIND_NAMES: dict[int, str] = {kind: name for name, kind in KINDS.items()}


def verbs_of(wired: Iterable[int]) -> Verb:
    """Return the verbs of a message. Raises InvalidArgument for unknown ones.

    >>> verbs_of([1, 2])
    <Verb.APPEND|READ: 3>
    """
    verbs = NONE
    for each in wired:
        if not 1 <= each <= len(Verb):
            raise InvalidArgument("the verbs are " + ", ".join(VERBS))
        verbs |= Verb(1 << each - 1)
    return verbs


def wire_verbs(verbs: Verb) -> list[pb.Verb]:
    """Return the verbs as a message has them, ascending."""
    return [number for number in _NUMBERS if verbs & Verb(1 << number - 1)]


_NUMBERS: tuple[pb.Verb, ...] = (pb.VERB_APPEND, pb.VERB_READ, pb.VERB_SEAL, pb.VERB_TRIM, pb.VERB_ADMIN)


def verb_names(verbs: Verb) -> list[str]:
    """Return the names of verbs."""
    return [name for name, verb in VERBS.items() if verbs & verb]


def check_rule(rule: pb.AccessRule) -> None:
    """Raise InvalidArgument unless the rule names a client, a kind, and a resource or a prefix."""
    if rule.principal != EVERY_CLIENT:
        if not rule.principal.startswith(CLIENT_START):
            raise InvalidArgument(
                f"rules are for clients: name client:NAME, or {EVERY_CLIENT} for all of them, not {rule.principal[:100]!r}"
            )
        check_client_name(rule.principal.removeprefix(CLIENT_START))
    if rule.kind not in KIND_NAMES:
        raise InvalidArgument("a rule is for a " + ", ".join(KINDS))
    verbs_of(rule.verbs)
    name = rule.name.removesuffix(PREFIX_END)
    if name == rule.name or name:
        _check_resource(KIND_NAMES[rule.kind], name, is_prefix=name != rule.name)


def check_client_name(name: str) -> str:
    """Return the name of a client: of a certificate or token of this cluster, or PREFIX:SUBJECT of another issuer.

    Raises InvalidArgument.

    >>> check_client_name("sso:ann@example.org")
    'sso:ann@example.org'
    """
    prefix, separator, subject = name.partition(SUBJECT_SEPARATOR)
    if not separator:
        return check_name("client", name)
    check_name("issuer's prefix", prefix)
    if len(subject) > SUBJECT_LENGTH_MAX or not _SUBJECT.match(subject):
        raise InvalidArgument(
            f"bad subject {subject[:100]!r}: up to {SUBJECT_LENGTH_MAX} letters, digits and . _ @ + = | / - , and a letter "
            "or digit first"
        )
    return name


def _check_resource(kind: str, name: str, *, is_prefix: bool) -> None:
    namespace, separator, topic = name.partition("/")
    if kind != "topic":
        check_name(kind, name)
        return
    check_name("namespace", namespace)
    if not separator and not is_prefix:
        raise InvalidArgument(f"a topic is named by NAMESPACE/NAME, or a prefix of that and {PREFIX_END}; not {name!r}")
    if topic or (separator and not is_prefix):
        check_name("topic", topic)


class Rules:
    """Rules by principal: what they give to one principal on one resource."""

    def __init__(self) -> None:
        self._of: dict[str, _RulesOfOne] = {}

    def count_of(self, principal: str) -> int:
        """Return the number of rules of a principal."""
        found = self._of.get(principal)
        return len(found.verbs) if found is not None else 0

    def changed(self, before: pb.AccessRule | None, after: pb.AccessRule | None) -> None:
        """Follow the table of rules; its hook."""
        if before is not None:
            of_one = self._of[before.principal]
            of_one.remove(before.kind, before.name)
            if not of_one.verbs:
                del self._of[before.principal]
        if after is not None:
            self._of.setdefault(after.principal, _RulesOfOne()).put(after.kind, after.name, verbs_of(after.verbs))

    def given(self, principal: str, kind: int, name: str) -> Verb:
        """Return what a principal may do to a resource; to what exists and to what does not, alike.

        `name` with a final `*`: to all resources of the prefix.
        """
        verbs = NONE
        for each in (principal, EVERY_CLIENT):
            of_one = self._of.get(each)
            if of_one is not None:
                verbs |= of_one.given(kind, name)
                if kind == pb.RESOURCE_KIND_TOPIC:
                    namespace, separator, _ = name.partition("/")
                    verbs |= of_one.given(pb.RESOURCE_KIND_NAMESPACE, namespace if separator else PREFIX_END)
        return verbs


class _RulesOfOne:
    """The rules of one principal, and the lengths of its prefixes with how many rules have each."""

    def __init__(self) -> None:
        self.verbs: dict[tuple[int, str], Verb] = {}
        self._lengths: dict[int, dict[int, int]] = {}

    def put(self, kind: int, name: str, verbs: Verb) -> None:
        self.verbs[kind, name] = verbs
        if name.endswith(PREFIX_END):
            lengths = self._lengths.setdefault(kind, {})
            lengths[len(name) - 1] = lengths.get(len(name) - 1, 0) + 1

    def remove(self, kind: int, name: str) -> None:
        del self.verbs[kind, name]
        if name.endswith(PREFIX_END):
            lengths = self._lengths[kind]
            lengths[len(name) - 1] -= 1
            if not lengths[len(name) - 1]:
                del lengths[len(name) - 1]

    def given(self, kind: int, name: str) -> Verb:
        verbs = self.verbs.get((kind, name), NONE)
        known = name.removesuffix(PREFIX_END)
        for length in self._lengths.get(kind, ()):
            if length <= len(known):
                verbs |= self.verbs.get((kind, known[:length] + PREFIX_END), NONE)
        return verbs


def right_missing(principal: str, verbs: Verb, kind: int, name: str) -> RightMissing:
    """Return the error for who lacks all of these verbs on a resource."""
    wanted, of = verb_names(verbs), KIND_NAMES.get(kind, "resource")
    shown = f"every {of}" if name == PREFIX_END else f"{of} {name[: 2 * NAME_LENGTH_MAX]!r}"
    return RightMissing(
        f"{principal} may not {' or '.join(wanted)} {shown}: an administrator gives the right by "
        f"`pdctl acl grant {shlex.quote(principal)} {wanted[0]} {of} {shlex.quote(name[: 2 * NAME_LENGTH_MAX])}`"
    )
