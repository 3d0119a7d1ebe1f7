"""Rights in the state machine: what rules give, what is refused, and that a snapshot keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_core.ids import journal_stream_name, shard_stream_name, side_log_name
from rangelog_core.rights import ANY, KINDS, NONE, RULES_OF_PRINCIPAL_MAX, VERBS, Rules, Verb, right_missing, wire_verbs
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.resources import decide
from rangelog_pd.state.versions import LEVEL_PACKING, LEVEL_RIGHTS
from rangelog_proto.v1 import pd_state_pb2
from rangelog_proto.v1 import rights_pb2 as pb

READ, APPEND = Verb.READ, Verb.APPEND


def rule(principal: str, verbs: Verb, kind: str, name: str) -> pb.AccessRule:
    return pb.AccessRule(principal=principal, kind=KINDS[kind], name=name, verbs=wire_verbs(verbs))


def grant(pd: Any, principal: str, verbs: Verb, kind: str, name: str) -> pb.AccessRule:
    request = pb.GrantRightsRequest(rule=rule(principal, verbs, kind, name))
    return pd.do(pb.GrantRightsResponse, grant_rights=request).rule


def revoke(pd: Any, principal: str, verbs: Verb, kind: str, name: str) -> pb.AccessRule:
    request = pb.RevokeRightsRequest(rule=rule(principal, verbs, kind, name))
    return pd.do(pb.RevokeRightsResponse, revoke_rights=request).rule


def enforce(pd: Any, *, on: bool) -> int:
    return int(pd.do(pb.EnforceRightsResponse, enforce_rights=pb.EnforceRightsRequest(enforced=on)).version)


def given(pd: Any, principal: str, kind: str, name: str = "", number: int = 0) -> Verb:
    asked = pb.AccessResource(kind=KINDS[kind], name=name, id=number)
    return decide(pd.state, principal, asked)[0]


def test_a_rule_gives_its_verbs_to_its_client_on_its_resource_only(pd: Any) -> None:
    """Another client, kind, name or role, and all of a prefix, are something else."""
    grant(pd, "client:a", READ, "stream", "s")
    assert given(pd, "client:a", "stream", "s") == READ
    for principal, kind, name in (
        ("client:b", "stream", "s"), ("client:a", "stream", "s2"), ("client:a", "stream", ""), ("client:a", "group", "s"),
        ("admin:a", "stream", "s"), ("client:*", "stream", "s"), ("client:a", "stream", "s*"), ("client:a", "stream", "*"),
    ):  # fmt: skip
        assert given(pd, principal, kind, name) == NONE, (principal, kind, name)


def test_prefixes_match_whole_starts_and_rules_add_up(pd: Any) -> None:
    """One character short is no match; what several rules give is added."""
    grant(pd, "client:a", READ, "stream", "or*")
    grant(pd, "client:a", APPEND, "stream", "orders-*")
    grant(pd, "*", Verb.TRIM, "stream", "*")
    grant(pd, "client:a", Verb.SEAL, "stream", "orders-1")
    assert given(pd, "client:a", "stream", "o") == Verb.TRIM
    assert given(pd, "client:a", "stream", "or") == READ | Verb.TRIM
    assert given(pd, "client:a", "stream", "orders") == READ | Verb.TRIM
    assert given(pd, "client:a", "stream", "orders-") == READ | APPEND | Verb.TRIM
    assert given(pd, "client:a", "stream", "orders-1") == READ | APPEND | Verb.TRIM | Verb.SEAL
    assert given(pd, "client:a", "stream", "orders-12") == READ | APPEND | Verb.TRIM
    assert given(pd, "client:a", "stream", "or*") == READ | Verb.TRIM
    assert given(pd, "client:a", "stream", "o*") == Verb.TRIM
    assert given(pd, "client:b", "stream", "orders-1") == Verb.TRIM
    revoke(pd, "client:a", NONE, "stream", "or*")
    assert given(pd, "client:a", "stream", "or") == Verb.TRIM


def test_a_namespace_is_for_all_its_topics_and_no_others(pd: Any) -> None:
    """A namespace's rule is one for its topics; a topic's is none for the namespace."""
    grant(pd, "client:a", READ, "namespace", "shop")
    assert given(pd, "client:a", "topic", "shop/t") == READ
    assert given(pd, "client:a", "namespace", "shop") == READ
    assert given(pd, "client:a", "topic", "shop2/t") == NONE
    assert given(pd, "client:a", "topic", "shop*") == NONE
    grant(pd, "client:a", APPEND, "topic", "shop/o*")
    assert given(pd, "client:a", "topic", "shop/orders") == READ | APPEND
    assert given(pd, "client:a", "namespace", "shop") == READ


def test_verbs_come_and_go_and_the_version_rises_with_each_change(pd: Any) -> None:
    """What changes nothing leaves the version, so servers ask for nothing."""
    assert pd.state.rights.version_in_force == 0
    grant(pd, "client:a", READ, "stream", "s")
    assert grant(pd, "client:a", APPEND, "stream", "s").verbs == wire_verbs(READ | APPEND)
    version = pd.state.rights.version
    grant(pd, "client:a", APPEND, "stream", "s")
    assert pd.state.rights.version == version == 2
    assert pd.state.rights.version_in_force == 0
    assert enforce(pd, on=True) == enforce(pd, on=True) == pd.state.rights.version_in_force == 3
    assert revoke(pd, "client:a", READ, "stream", "s").verbs == wire_verbs(APPEND)
    assert revoke(pd, "client:a", NONE, "stream", "s").verbs == []
    assert not pd.state.rights.rules
    with pytest.raises(PreconditionFailed, match="no rule of its own"):
        revoke(pd, "client:a", NONE, "stream", "s")
    assert pd.state.rights.version_in_force == 5


def test_a_snapshot_keeps_rules_and_that_they_are_enforced(pd: Any) -> None:
    """A restart, and a member that gets the snapshot, enforce the same."""
    grant(pd, "client:a", READ, "stream", "or*")
    enforce(pd, on=True)
    pd.reload()
    assert pd.state.rights.enforced and pd.state.rights.version_in_force == 2
    assert given(pd, "client:a", "stream", "orders") == READ
    other = Machine()
    other.restore(pd.machine.snapshot())
    assert other.snapshot() == pd.machine.snapshot()


@pytest.mark.parametrize(
    ("principal", "kind", "name", "told"),
    [
        ("admin:a", "stream", "s", "rules are for clients"),
        ("client:", "stream", "s", "a client needs a name"),
        ("client:*", "stream", "s", "bad client name"),
        ("", "stream", "s", "rules are for clients"),
        ("client:a", "stream", "", "a stream needs a name"),
        ("client:a", "stream", "a*b", "bad stream name"),
        ("client:a", "stream", "a**", "bad stream name"),
        ("client:a", "stream", "_topic-1-shard-0", "bad stream name"),
        ("client:a", "topic", "t", "NAMESPACE/NAME"),
        ("client:a", "topic", "a/", "a topic needs a name"),
        ("client:a", "topic", "a/b/c", "bad topic name"),
        ("client:a", "group", "g" * 300, "300 characters"),
    ],
)
def test_bad_rules_change_nothing(pd: Any, principal: str, kind: str, name: str, told: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(InvalidArgument, match=told):
        grant(pd, principal, READ, kind, name)
    assert not pd.state.rights.rules and pd.state.rights.version == 0


def test_bad_verbs_and_kinds_are_refused(pd: Any) -> None:
    """None, unknown ones, an unknown kind."""
    for verbs in ([], [0], [6], [1, 99]):
        bad = pb.AccessRule(principal="client:a", kind=KINDS["stream"], name="s", verbs=verbs)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            pd.do(pb.GrantRightsResponse, grant_rights=pb.GrantRightsRequest(rule=bad))
    bad = pb.AccessRule(principal="client:a", kind=9, name="s", verbs=[1])  # type: ignore[arg-type, list-item]
    with pytest.raises(InvalidArgument, match="a rule is for a stream, topic"):
        pd.do(pb.GrantRightsResponse, grant_rights=pb.GrantRightsRequest(rule=bad))


def test_rules_are_bounded(pd: Any) -> None:
    """At the limit a rule that exists may still change, and others get theirs."""
    for number in range(RULES_OF_PRINCIPAL_MAX):
        pd.state.rights.rules.put(("client:a", 1, f"s{number}"), rule("client:a", READ, "stream", f"s{number}"))
    with pytest.raises(PreconditionFailed, match="the limit"):
        grant(pd, "client:a", READ, "stream", "one-more")
    grant(pd, "client:a", APPEND, "stream", "s1")
    grant(pd, "client:b", READ, "stream", "one-more")


def test_the_streams_of_a_topic_are_its_topics_and_journals_are_nobodys(pd: Any, topics: Any) -> None:
    """Clients read shards by the right on the topic; a rule for all streams gives nothing internal."""
    made = topics.create("t", shards=1)
    name = f"{made.namespace}/t"
    stream_id = pd.state.names.get(shard_stream_name(made.topic_id, 0))
    grant(pd, "client:a", ANY, "stream", "*")
    for internal in (journal_stream_name(0), side_log_name(made.topic_id, 0), shard_stream_name(made.topic_id, 0)):
        assert given(pd, "client:a", "stream", internal) == NONE
    grant(pd, "client:a", READ | APPEND, "topic", name)
    assert given(pd, "client:a", "stream", number=stream_id) == READ
    assert given(pd, "client:a", "topic", number=made.topic_id) == READ | APPEND
    assert given(pd, "client:a", "topic", number=made.topic_id + 1) == NONE
    assert given(pd, "client:a", "stream", number=99_999) == NONE


def test_earlier_programs_never_get_these_commands() -> None:
    """A member of the level before stops at one."""
    for action in ("grant_rights", "revoke_rights", "enforce_rights"):
        command = pd_state_pb2.Command(version=LEVEL_RIGHTS)
        getattr(command, action).SetInParent()
        assert needed_level(command) == LEVEL_RIGHTS
        with pytest.raises(UnsupportedVersion):
            Machine(LEVEL_PACKING).apply(1, command.SerializeToString())


def test_a_snapshot_with_rules_that_are_none_is_refused(pd: Any) -> None:
    """Nothing is taken over."""
    pd.state.rights.rules.put(("x", 1, "s"), rule("x", READ, "stream", "s"))
    pd.state.rights.version = 1
    with pytest.raises(Corruption, match="a malformed rule"):
        Machine().restore(pd.machine.snapshot())
    pd.state.rights.rules.remove(("x", 1, "s"))
    grant(pd, "client:a", READ, "stream", "s")
    pd.state.rights.version = 0
    with pytest.raises(Corruption, match="no version"):
        Machine().restore(pd.machine.snapshot())


def test_a_refusal_names_verb_resource_and_the_command_that_helps() -> None:
    """Also for names that a shell would read otherwise."""
    told = right_missing("client:a", READ | APPEND, KINDS["stream"], "o'x").message
    assert "client:a may not append or read stream" in told
    assert "pdctl acl grant client:a append stream 'o'\"'\"'x'" in told
    assert "every group" in right_missing("client:a", READ, KINDS["group"], "*").message


def test_the_index_forgets_what_is_removed() -> None:
    """Rules that change and go leave nothing."""
    rules, first = Rules(), rule("client:a", READ, "stream", "a*")
    rules.changed(None, first)
    rules.changed(first, rule("client:a", APPEND, "stream", "a*"))
    assert rules.given("client:a", KINDS["stream"], "ab") == VERBS["append"]
    rules.changed(rule("client:a", APPEND, "stream", "a*"), None)
    assert rules.given("client:a", KINDS["stream"], "ab") == NONE and rules.count_of("client:a") == 0
