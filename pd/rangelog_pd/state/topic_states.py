"""The states of a topic, and which operation leads from which state to which: all of it is in one table.

What holds: an operation that the table does not list for a topic's state is refused with the state's name, before anything
is changed; so is an operation that topics of this kind do not have. A topic has no state before its creation, which is one
entry, and none after its deletion.
"""

from __future__ import annotations

from rangelog_core.errors import InternalError, TopicKindForbids, TopicStateForbids
from rangelog_proto.v1 import topic_pb2
from rangelog_proto.v1.topic_pb2 import TopicState

ACTIVE = topic_pb2.TOPIC_STATE_ACTIVE
SCALING = topic_pb2.TOPIC_STATE_SCALING
TRUNCATING = topic_pb2.TOPIC_STATE_TRUNCATING
SEALING = topic_pb2.TOPIC_STATE_SEALING
SEALED = topic_pb2.TOPIC_STATE_SEALED
DELETING = topic_pb2.TOPIC_STATE_DELETING

STATES = (ACTIVE, SCALING, TRUNCATING, SEALING, SEALED, DELETING)

TRANSITIONS: dict[str, dict[TopicState, tuple[TopicState, ...]]] = {
    "update": {state: (state,) for state in (ACTIVE, SCALING, TRUNCATING, SEALING, SEALED)},
    "start the scale of": {ACTIVE: (SCALING,)},
    "cancel the scale of": {SCALING: (ACTIVE,)},
    "commit the scale of": {SCALING: (ACTIVE,)},
    "truncate": {ACTIVE: (ACTIVE, TRUNCATING), SEALED: (SEALED, TRUNCATING)},
    "finish the truncation of": {TRUNCATING: (ACTIVE, SEALED)},
    "seal": {ACTIVE: (SEALING,)},
    "end a shard of": {SEALING: (SEALING, SEALED)},
    "delete": {SEALED: (DELETING,)},
    "force the deletion of": dict.fromkeys((ACTIVE, SCALING, TRUNCATING, SEALING, SEALED), (DELETING,)),
}
"""By operation, as messages name it: the states in which it is legal, each with the states that it may lead to."""


OF_RECORDS = ("start the scale of", "truncate", "seal")
"""Operations on topics of records only: they end or trim shards' streams, which a table needs whole."""


def state_name(state: TopicState) -> str:
    """Return a state as messages name it."""
    return topic_pb2.TopicState.Name(state).removeprefix("TOPIC_STATE_").lower()


def check_legal(topic: topic_pb2.Topic, operation: str) -> None:
    """Raise TopicKindForbids, TopicStateForbids unless the operation is legal for the topic's kind and in its state."""
    if operation in OF_RECORDS and topic.config.kind == topic_pb2.TOPIC_KIND_TABLE:
        raise TopicKindForbids(f"cannot {operation} {topic.namespace}/{topic.name}: it is a table")
    legal = TRANSITIONS[operation]
    if topic.state not in legal:
        raise TopicStateForbids(
            f"cannot {operation} topic {topic.namespace}/{topic.name}: it is {state_name(topic.state)}, and must be "
            + " or ".join(state_name(each) for each in legal)
        )


def enter(topic: topic_pb2.Topic, operation: str, state: TopicState, now_ms: int) -> None:
    """Change the state of a topic's copy, and its date. Raises InternalError for a transition that the table does not have."""
    if state not in TRANSITIONS[operation].get(topic.state, ()):
        raise InternalError(f"to {operation} a topic leads from {state_name(topic.state)} to no {state_name(state)}")
    if state != topic.state:
        topic.state = state
        topic.state_since_ms = now_ms
