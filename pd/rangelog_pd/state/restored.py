"""The changes of a state with which a new group begins, after the group that wrote it is lost.

What holds: no id, epoch or version that the lost group may have given after the state was saved is ever given again, so a
writer, an object or an owner of that time is not taken for one of this; a replica of a stream that was created after it is
unknown, not deleted: no server gets a directive to drop it.
"""

from __future__ import annotations

from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of

GAP = 1 << 20
"""More than a group gives of one kind between two saves."""


def leave_gap(state: State) -> None:
    """Raise everything that is counted by a gap. The cost is that of the whole state, once."""
    first, _ = state.lost_streams
    state.lost_streams = (first or state.next_stream_id, state.next_stream_id + GAP)
    state.next_stream_id += GAP
    state.next_object_id += GAP
    state.topics.next_topic_id += GAP
    state.cursors.next_version += GAP
    for stream in list(state.streams.values()):
        raised = copy_of(stream)
        raised.epoch += GAP
        raised.version += GAP
        state.put_stream(raised)
    for key, assignment in list(state.owners.assignments.items()):
        moved = copy_of(assignment)
        moved.owner_epoch += GAP
        state.owners.assignments.put(key, moved)
