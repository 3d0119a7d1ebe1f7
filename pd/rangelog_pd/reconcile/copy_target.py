"""Which server gets a further copy of a sealed range: for repairs, and for ranges that leave a server.

What holds: a copy goes to a living server that has no replica of the range, as far from the replicas that stay as the
stream's policy wants it, and farther where that is possible; it counts as load from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rangelog_pd.placement import Place, Placer, policy_of, replicas_of
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2


def choose_copy(
    state: State,
    placer: Placer,
    of: common_pb2.Range,
    staying: Sequence[common_pb2.Replica],
    holding: Collection[str],
    reason: common_pb2.ReplicaReason,
) -> common_pb2.Replica:
    """Return the further member of a range. Raises NoPlacement.

    `staying`: the members that count. `holding`: servers that must not get the copy.
    """
    config = state.streams[of.stream_id].config
    rows = [row.server for each in staying if (row := state.servers.find(each.server))]
    (target,) = placer.place(
        replicas=1,
        acks=1,
        exclude=holding,
        strictly=True,
        policy=policy_of(config),
        taken=[Place(each.zone, each.rack, each.host) for each in rows],
        later=max(0, config.replicas - len(staying) - 1),
    )
    (replica,) = replicas_of([target.because(reason)], with_reason=state.cluster_version >= LEVEL_OPERATIONS)
    return replica
