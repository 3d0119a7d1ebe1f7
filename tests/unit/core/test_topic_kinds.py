"""Who uses a topic of one kind refuses those of the other."""

from __future__ import annotations

import pytest

from rangelog_core.errors import PreconditionFailed, TopicKindForbids
from rangelog_core.topic_kinds import check_kind
from rangelog_proto.v1 import topic_pb2 as pb


def topic(kind: pb.TopicKind) -> pb.Topic:
    return pb.Topic(namespace="ns", name="t", config=pb.TopicConfig(kind=kind))


def test_a_topic_of_the_wanted_kind_passes() -> None:
    """One without a kind is of records."""
    for kind in (pb.TOPIC_KIND_UNSPECIFIED, pb.TOPIC_KIND_RECORDS):
        assert check_kind(topic(kind), pb.TOPIC_KIND_RECORDS).name == "t"
    assert check_kind(topic(pb.TOPIC_KIND_TABLE), pb.TOPIC_KIND_TABLE).name == "t"


@pytest.mark.parametrize("kind", [pb.TOPIC_KIND_TABLE, 9])
def test_others_are_refused_by_name(kind: pb.TopicKind) -> None:
    """A later kind too; the error is a failed precondition."""
    with pytest.raises(TopicKindForbids, match=r"ns/t is .*, not a topic of records") as caught:
        check_kind(topic(kind), pb.TOPIC_KIND_RECORDS)
    assert isinstance(caught.value, PreconditionFailed)
    with pytest.raises(TopicKindForbids):
        check_kind(topic(pb.TOPIC_KIND_RECORDS), pb.TOPIC_KIND_TABLE)
