"""The faults of a cluster, by the answers of its processes: each finding with what to do. Pure.

What holds: each check has at least one finding, "ok" where nothing is wrong, so a check that could not be made is never taken
for a good one: it is "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OK, NOTE, UNKNOWN, PROBLEM = "ok", "note", "unknown", "problem"
SKEW_MS_MAX = 1_000
DISK_FREE_SHARE_MIN = 0.10
ORPHANS_LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One result of a check: `subject` is what it is about, `advice` what to do about it."""

    check: str
    state: str
    subject: str
    detail: str
    advice: str = ""


@dataclass(slots=True)
class Clock:
    """A process's wall clock beside ours: its reading, and ours in the middle of the call, both in ms."""

    told_ms: int
    ours_ms: float
    round_trip_ms: float

    @property
    def ahead_ms(self) -> float:
        """How far it is ahead of ours, to about half the round trip."""
        return self.told_ms - self.ours_ms


@dataclass(slots=True)
class Gathered:
    """The answers that the examination has gathered. The maps are by name; a value that is a text says why there is no
    answer."""

    described: Any
    members: Mapping[str, Any] = field(default_factory=dict)  # name → InspectMemberResponse, or why not
    servers: Mapping[str, Any] = field(default_factory=dict)  # name → GetStatusResponse, or why not
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    orphans: Sequence[str] | None = None  # open ranges that nobody writes; None: not all servers answered
    tls: bool = False


def findings(told: Gathered) -> list[Diagnosis]:
    """Return the findings of all checks, in a fixed order."""
    found: list[Diagnosis] = []
    for check in (_leader, _members, _servers, _versions, _clocks, _disks, _copies, _orphans, _tasks, _tier, _tls):
        found += check(told)
    return found


def _leader(told: Gathered) -> list[Diagnosis]:
    described = told.described
    if described.health == "unavailable":
        advice = "start the missing placement drivers: a majority of them must run"
        return [Diagnosis("leader", PROBLEM, "cluster", "; ".join(described.reasons) or "nobody leads", advice)]
    return [Diagnosis("leader", OK, next((each.name for each in described.members if each.leader), "-"), "leads")]


def _members(told: Gathered) -> list[Diagnosis]:
    found = []
    for name, answer in told.members.items():
        if isinstance(answer, str):
            advice = "look at its log; the group goes on while a majority of it runs"
            found.append(Diagnosis("members", PROBLEM, name, answer, advice))
    return found or [Diagnosis("members", OK, "cluster", f"all {len(told.members)} placement drivers answer")]


def _servers(told: Gathered) -> list[Diagnosis]:
    found = []
    for each in told.described.servers:
        word = _word(each.health)
        answer = told.servers.get(each.name)
        if word != "alive":
            advice = f"start it again, or, if it is gone for good, remove it; see `pdctl server show {each.name}`"
            found.append(Diagnosis("servers", PROBLEM, each.name, f"is {word}", advice))
        elif isinstance(answer, str):
            advice = "its control address must be reachable from here: nothing else is known of it"
            found.append(Diagnosis("servers", UNKNOWN, each.name, answer, advice))
        elif answer is not None and answer.log_problem:
            found.append(Diagnosis("servers", PROBLEM, each.name, answer.log_problem, "make room on its disk"))
    if not told.described.servers:
        return [Diagnosis("servers", PROBLEM, "cluster", "no range server is registered", "start three of them")]
    return found or [Diagnosis("servers", OK, "cluster", f"all {len(told.described.servers)} range servers are alive")]


def _versions(told: Gathered) -> list[Diagnosis]:
    versions: dict[str, list[str]] = {}
    for name, answer in (*told.members.items(), *told.servers.items()):
        if not isinstance(answer, str):
            versions.setdefault(answer.version, []).append(name)
    if not versions:
        return [Diagnosis("versions", UNKNOWN, "cluster", "nobody told a version")]
    if len(versions) > 1:
        listed = "; ".join(f"{version}: {', '.join(sorted(names))}" for version, names in sorted(versions.items()))
        return [Diagnosis("versions", NOTE, "cluster", listed, "finish the upgrade: placement drivers first")]
    levels = [each.feature_level for each in told.members.values() if not isinstance(each, str)]
    behind = [level for level in levels if level > told.described.cluster_version]
    if behind:
        detail = f"cluster version {told.described.cluster_version}, the programs have {max(behind)}"
        return [Diagnosis("versions", NOTE, "cluster", detail, "see `pdctl upgrade check`")]
    return [Diagnosis("versions", OK, "cluster", f"all run {next(iter(versions))}")]


def _clocks(told: Gathered) -> list[Diagnosis]:
    if not told.clocks:
        return [Diagnosis("clocks", UNKNOWN, "cluster", "nobody told the time")]
    ordered = sorted(told.clocks.items(), key=lambda item: item[1].ahead_ms)
    middle_ms = ordered[len(ordered) // 2][1].ahead_ms
    found = []
    for name, clock in ordered:
        off_ms = clock.ahead_ms - middle_ms
        if abs(off_ms) > SKEW_MS_MAX + clock.round_trip_ms / 2:
            way = "ahead of" if off_ms > 0 else "behind"
            detail = f"its clock is {abs(off_ms) / 1000:.1f} s {way} the others'"
            found.append(
                Diagnosis("clocks", PROBLEM, name, detail, "set up NTP there: timestamps and retention go by it")
            )
    return found or [Diagnosis("clocks", OK, "cluster", f"{len(ordered)} clocks agree to {SKEW_MS_MAX / 1000:g} s")]


def _disks(told: Gathered) -> list[Diagnosis]:
    found = []
    known = False
    for name, answer in (*told.members.items(), *told.servers.items()):
        if isinstance(answer, str) or not answer.disk_total_bytes:
            continue
        known = True
        share = answer.disk_free_bytes / answer.disk_total_bytes
        capacity = getattr(answer, "capacity_bytes", 0)
        if capacity:
            share = min(share, max(0.0, 1 - answer.used_bytes / capacity))
        if share < DISK_FREE_SHARE_MIN:
            advice = "add a server, raise its capacity, shorten the hot retention, or trim"
            found.append(Diagnosis("disks", PROBLEM, name, f"{share:.0%} of its disk is free", advice))
    if not known:
        return [Diagnosis("disks", UNKNOWN, "cluster", "nobody told of its disk")]
    return found or [Diagnosis("disks", OK, "cluster", f"every disk has {DISK_FREE_SHARE_MIN:.0%} free or more")]


def _copies(told: Gathered) -> list[Diagnosis]:
    described = told.described
    found = []
    if described.lost_range_count:
        detail = f"{described.lost_range_count} ranges have no copy left"
        found.append(
            Diagnosis(
                "copies",
                PROBLEM,
                "cluster",
                detail,
                "bring back a server that holds them, or see `pdctl repair list --state lost`",
            )
        )
    if described.under_replicated_range_count:
        detail = next((each for each in described.reasons if each.startswith("under-replicated")), "")
        advice = "repair starts by itself once a server is gone for a minute: see `pdctl task list`"
        if described.blocked_repair_count:
            advice = f"{described.blocked_repair_count} of them have no server to go to: add a range server"
        found.append(Diagnosis("copies", PROBLEM, "cluster", detail or "too few copies", advice))
    return found or [Diagnosis("copies", OK, "cluster", "every range has its copies")]


def _orphans(told: Gathered) -> list[Diagnosis]:
    if told.orphans is None:
        return [Diagnosis("open ranges", UNKNOWN, "cluster", "not all range servers say who writes")]
    if not told.orphans:
        return [Diagnosis("open ranges", OK, "cluster", "each open range has a writer")]
    listed = ", ".join(told.orphans[:ORPHANS_LISTED_MAX]) + (", …" if len(told.orphans) > ORPHANS_LISTED_MAX else "")
    detail = f"{len(told.orphans)} open without a connected writer: {listed}"
    advice = (
        "start the writer, or seal the stream with `pdctl range seal`: an open range is neither repaired nor tiered"
    )
    return [Diagnosis("open ranges", NOTE, "cluster", detail, advice)]


def _tasks(told: Gathered) -> list[Diagnosis]:
    if told.described.failing_task_count:
        detail = next((each for each in told.described.reasons if each.startswith("failing")), "tasks fail")
        return [Diagnosis("tasks", PROBLEM, "cluster", detail, "see `pdctl task list --failing`")]
    return [Diagnosis("tasks", OK, "cluster", "no task fails")]


def _tier(told: Gathered) -> list[Diagnosis]:
    if not told.described.tier_url:
        advice = "give the placement drivers a tier_url, if old data is to go to an object store"
        return [Diagnosis("tier", NOTE, "cluster", "no tier: everything stays on the range servers", advice)]
    errors = [each for each in told.described.reasons if each.startswith("the tier fails")]
    if errors:
        return [Diagnosis("tier", PROBLEM, "cluster", each, "see `pdctl doctor s3`") for each in errors]
    return [Diagnosis("tier", OK, "cluster", "it was written to and read at the last check")]


def _tls(told: Gathered) -> list[Diagnosis]:
    if told.tls:
        return [Diagnosis("certificates", OK, "cluster", "this connection uses TLS")]
    detail = "connections are not encrypted, and whoever reaches a port may do everything"
    return [
        Diagnosis(
            "certificates",
            NOTE,
            "cluster",
            detail,
            "give every process tls_ca, tls_cert and tls_key (docs/security.md)",
        )
    ]


def _word(health: int) -> str:
    from pdctl.views import word
    from rangelog_proto.v1 import common_pb2

    return word(common_pb2.ServerHealth, health)
