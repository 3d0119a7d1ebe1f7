"""What a command on topics that took effect shows: the corner cases of scaling and retention."""

from __future__ import annotations

from collections.abc import Iterator

from rangelog_proto.v1 import pd_state_pb2

TRIMMING = ("truncate_topic", "retain_topic", "continue_topic")


def corner_cases_of(command: pd_state_pb2.Command) -> Iterator[str]:
    """Yield the names of what an applied command shows."""
    action = command.WhichOneof("action")
    if action == "commit_scale":
        yield "a scale was committed"
    elif action == "start_own_scale":
        yield "a topic scaled by itself"
        request = command.start_own_scale.request
        if len(request.key_ranges) < len(request.parents):
            yield "a scale by itself merged shards"
    elif action == "cancel_scale" and not command.request_id:
        yield "a scale that nobody carried out was cancelled"
    elif action == "continue_topic" and command.continue_topic.covered:
        yield "a truncation went on once snapshots covered it"
    elif action == "retain_topic":
        yield "a topic was trimmed by its retention"
    elif action == "take_cuts":
        yield "a cut was taken for a retention set"
