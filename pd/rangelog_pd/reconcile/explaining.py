"""Why a new range of a stream would be put on these servers and not on others. For people; nothing is changed.

What holds: the chosen servers are those that the same candidates give a new range; each other server has one reason, the
first that kept it from being chosen: what rules it out, then its place, then its load.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, ServerHealth, place, policy_of
from rangelog_proto.v1 import common_pb2


def explain(
    candidates: Sequence[Candidate], config: common_pb2.StreamConfig
) -> tuple[list[Candidate], dict[str, str], str]:
    """Return the chosen servers, why each other one was not chosen, and the refusal; the first is empty with a refusal."""
    policy, refusal = policy_of(config), ""
    try:
        chosen = place(candidates, replicas=config.replicas, acks=config.acks, policy=policy)
    except NoPlacement as error:
        chosen, refusal = [], error.message
    names = {each.server for each in chosen}
    others = sorted((each for each in candidates if each.server not in names), key=lambda each: each.server)
    return chosen, {each.server: _why_not(each, chosen, policy.labels) for each in others}, refusal


def _why_not(candidate: Candidate, chosen: Sequence[Candidate], labels: frozenset[str]) -> str:
    """Return what kept a server from being chosen."""
    lacking = sorted(labels - candidate.labels)
    if candidate.barred:
        return "it takes no new replicas: see `pdctl server show`"
    if lacking:
        return f"it lacks the label {', '.join(lacking)}" if len(lacking) == 1 else f"it lacks {', '.join(lacking)}"
    if candidate.health is not ServerHealth.ALIVE:
        return f"it is {candidate.health.name.lower()}"
    if candidate.avoided and not any(each.avoided for each in chosen):
        return "writers or peers have trouble with it"
    if not chosen:
        return "it may have a replica, but there is no placement"
    if candidate.full and not any(each.full for each in chosen):
        return "its disk is nearly full"
    if why := _taken(candidate, chosen):
        return why
    same = [
        each for each in chosen if each.zone == candidate.zone and (not candidate.rack or each.rack == candidate.rack)
    ]
    other = max(same or chosen, key=lambda each: (each.load, each.server))
    if candidate.load > other.load:
        return f"it has more load than {other.server}"
    return f"it has as much load as {other.server}, which is first by name"


def _taken(candidate: Candidate, chosen: Sequence[Candidate]) -> str:
    """Return which of the chosen takes a server's host, or its zone or rack where a freer place was found."""
    beside = next((each.server for each in chosen if candidate.host and each.machine == candidate.machine), "")
    if beside:
        return f"{beside} has a replica on its host {candidate.host}"
    zones = [each.zone for each in chosen]
    racks = [(each.zone, each.rack) for each in chosen]
    in_zone, in_rack = zones.count(candidate.zone), racks.count((candidate.zone, candidate.rack))
    if candidate.zone and in_zone and len({*zones}) == len(zones) > 1:
        return f"{chosen[zones.index(candidate.zone)].server} has a replica in its zone {candidate.zone}"
    if candidate.rack and in_rack and len({*racks}) == len(racks) > 1:
        return (
            f"{chosen[racks.index((candidate.zone, candidate.rack))].server} has a replica in its rack {candidate.rack}"
        )
    return ""
