"""The forms of the routes of streams: what goes in comes out, and nothing of it can break an answer's head."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog import GroupRecord, TopicRecord
from rangelog.errors import InvalidArgument, MemberNotFound
from rangelog_core.ids import check_name
from rangelog_core.topic_names import TopicName
from rangelog_http.wire import cdap
from rangelog_http.wire.cdap import Choice, answer_headers, choice_of, choice_of_id, consumer_id, event_headers

STREAM, SECRET = TopicName("default", "who"), "0" * 32


def event(offset: int, **more: bytes) -> GroupRecord:
    """An event with headers."""
    return GroupRecord("default/who", 0, offset, 7, None, b"body", more)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/streams", "/v2/streams/", "/v2/streams/a/", "/v2/streams/a/b/c", "/v1/streams/a", "/v3/namespaces/n/streams",
        "/v3/namespaces/n/topics/a", "/v3/streams/a", "v2/streams/a", "/",
    ],
)  # fmt: skip
def test_other_paths(path: str) -> None:
    """They are no streams'."""
    assert cdap.stream_of(path) is None


def test_headers_of_events() -> None:
    """Those of the stream, without its name; out again, what HTTP can say."""
    given_ = [(b"who.color", b"red"), (b"whose.x", b"1"), (b"who.", b"2"), (b"host", b"x"), (b"who.a.b", b"\xff")]
    found = event_headers("Who", given_)
    assert found == {"color": b"red", "a.b": b"\xff"}
    assert answer_headers("Who", found) == ((b"Who.color", b"red"), (b"Who.a.b", b"\xff"))
    long = {"a": bytes(b"x" * cdap.HEADERS_BYTES_MAX), "b": b"short"}
    assert answer_headers("Who", long) == ((b"Who.b", b"short"),)


@given(st.dictionaries(st.text(max_size=9), st.binary(max_size=9), max_size=5))
def test_no_event_breaks_the_head_of_an_answer(headers: dict[str, bytes]) -> None:
    """Whatever its producer has put into it."""
    for name, value in answer_headers("who", headers):
        assert not set(b"\r\n\0") & {*name, *value} and not set(b" :\t") & {*name}
        assert headers[name.removeprefix(b"who.").decode()] == value


def test_batches() -> None:
    """A line is an event; the last one may have an end."""
    made = cdap.events_of(b"a\r\n\nb", "text/csv; charset=utf-8", {"h": b"1"}, 10)
    assert made is not None and [each.value for each in made] == [b"a", b"", b"b"]
    assert all(each.headers == {"h": b"1"} for each in made)
    assert cdap.events_of(b"a\n", "avro/binary", {}, 10) is None
    for body, kind in ((b"a", ""), (b"", "text/plain"), (b"a\n" * 11, "text/plain")):
        with pytest.raises(InvalidArgument):
            cdap.events_of(body, kind, {}, 10)


@pytest.mark.parametrize("ttl", [0, 1, 86_400, cdap.TTL_MAX - 1, cdap.TTL_FOR_EVER])
def test_times_to_live(ttl: int) -> None:
    """They come back as they were given."""
    age_s = cdap.age_of_ttl({"ttl": ttl})
    assert age_s is not None and cdap.ttl_of_age(age_s) == ttl and (age_s == 0) == (ttl >= cdap.TTL_MAX)


@pytest.mark.parametrize("ttl", [-1, 1.5, "1", None, True, [], float("nan")])
def test_strange_times_to_live(ttl: object) -> None:
    """Refused, and so is a property that there is none of."""
    with pytest.raises(InvalidArgument):
        cdap.age_of_ttl({"ttl": ttl})
    with pytest.raises(InvalidArgument):
        cdap.age_of_ttl({"ttl": 1, "format": {"name": "text"}})


@given(st.binary(max_size=50))
def test_bodies_can_be_told_apart(value: bytes) -> None:
    """Printable ASCII is as it is, any other byte is escaped, and so is the escape."""
    body = json.loads(cdap.event_object(TopicRecord(0, 0, 7, None, value, {})))["body"]
    assert all(" " <= each <= "~" for each in body)
    assert body.encode().decode("unicode_escape").encode("latin-1") == value


@given(st.integers(1, 1_000), st.binary(max_size=8), st.integers(0, 1 << 62))
def test_each_event_is_one_instances(size: int, key: bytes, offset: int) -> None:
    """Of all instances of a consumer, whatever its mode."""
    for mode, header in (("round_robin", ""), ("hash", "user")):
        record = event(offset, user=key)
        assert sum(Choice(mode, size, instance, header).takes(record) for instance in range(size)) == 1
    assert Choice().takes(event(offset))


def test_a_hash_keeps_a_header_together() -> None:
    """Events of one user are one instance's; without a header the key counts."""
    choices = [Choice("hash", 3, instance, "user") for instance in range(3)]
    for user in (b"a", b"b", b"c", b"d"):
        taking = {[each.takes(event(offset, user=user)) for each in choices].index(True) for offset in range(20)}
        assert len(taking) == 1
    assert {[each.takes(event(0, user=b"%d" % user)) for each in choices].index(True) for user in range(50)} == {
        0,
        1,
        2,
    }


@pytest.mark.parametrize(
    "query",
    [
        {"mode": "x"}, {"size": "0"}, {"mode": "hash", "size": "1001"}, {"mode": "hash", "size": "2", "instance": "2"},
        {"mode": "hash", "size": "x"}, {"mode": "round_robin", "header": "x"}, {"size": "2"},
        {"mode": "hash", "header": "x" * 33}, {"mode": "hash", "size": "-1"},
    ],
)  # fmt: skip
def test_strange_choices(query: dict[str, str]) -> None:
    """Refused before there is a group."""
    with pytest.raises(InvalidArgument):
        choice_of(query)


def test_an_id_is_of_one_principal_and_one_stream() -> None:
    """It is the name of a group; any change makes it nobody's."""
    for query in ({}, {"mode": "round_robin", "size": "1000", "instance": "999"}, {"mode": "hash", "header": "é" * 16}):
        choice = choice_of(query)
        made = consumer_id(choice, "client:ann", STREAM, SECRET)
        assert check_name("group", made) == made and choice_of_id(made, "client:ann", STREAM) == choice
        for owner, stream in (("client:bob", STREAM), ("", STREAM), ("client:ann", TopicName("web", "who"))):
            with pytest.raises(MemberNotFound):
                choice_of_id(made, owner, stream)
        for place in range(len(made)):
            changed = made[:place] + ("1" if made[place] != "1" else "2") + made[place + 1 :]
            with pytest.raises((MemberNotFound, InvalidArgument)):
                choice_of_id(changed, "client:ann", STREAM)
    for text in ("", "7", "cdap.f1.0..x.y", made + "\n"):
        with pytest.raises(InvalidArgument):
            choice_of_id(text, "client:ann", STREAM)
