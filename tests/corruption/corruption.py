"""All damages: the log of a range server, the Raft files of a placement driver, a tiered object, an object store that lies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.corruption.damage_member import MemberDamage
from tests.corruption.damage_object import ObjectDamage
from tests.corruption.damage_store import LogDamage
from tests.corruption.damage_tally import SHORT, SHORT_ENCRYPTED, WHOLE, Damages
from tests.corruption.s3_faults import S3Faults, S3Outcome, impatient
from tests.simulation.fresh_seeds import commit_id, fresh_seed

S3_SHARE = 0.4
"""Of the requests that go wrong."""


@dataclass
class Results:
    """By part."""

    damages: dict[str, Damages] = field(default_factory=dict)
    s3: list[S3Outcome] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Of all."""
        found = [f"{part}: {problem}" for part, each in self.damages.items() for problem in each.problems]
        return found + [f"object store: {problem}" for each in self.s3 for problem in each.problems]


def run(directory: Path, results: Results, *, whole: bool) -> Iterator[str]:
    """Damage everything; yield a line after each part.

    The short form tries other bytes and lengths for each commit, spread evenly over every file: all come in their turn.
    """
    how, encrypted = WHOLE, WHOLE
    if not whole:
        how, encrypted = (replace(each, shift=fresh_seed(commit_id())) for each in (SHORT, SHORT_ENCRYPTED))
    member_seeds = range(1, 7) if whole else range(1, 4)
    parts = {
        "log": LogDamage(1, sidecars=True).run,
        "log without sidecars": LogDamage(2, sidecars=False).run,
        "encrypted log": LogDamage(3, sidecars=True, encrypted=True).run,
        "object": ObjectDamage(directory, 1).run,
    } | {f"Raft files {seed}": MemberDamage(seed).run for seed in member_seeds}
    for name, damage in parts.items():
        found = results.damages[name] = damage(encrypted if name == "encrypted log" else how)
        outcomes = " ".join(f"{outcome.replace(' ', '_')}={count}" for outcome, count in sorted(found.outcomes.items()))
        yield f"{name}: flips={found.flips} cuts={found.cuts} {outcomes} problems={len(found.problems)}"
    for seed in range(1, 9 if whole else 2):
        uploads, reads = (8, 40) if whole else (4, 10)
        with impatient():
            s3 = asyncio.run(S3Faults(directory, seed, share=S3_SHARE, uploads=uploads, reads=reads).run())
        results.s3.append(s3)
        yield (
            f"object store {seed}: requests={s3.requests} faults={s3.faults.total()} uploads={s3.uploads} "
            f"tries={s3.upload_tries} reads={s3.reads} refused={s3.read_errors} problems={len(s3.problems)}"
        )


def figures(results: Results) -> dict[str, Any]:
    """What is published: measured numbers only."""
    both, faults = Damages(), sum((each.faults for each in results.s3), start=type(results.s3[0].faults)())
    for each in results.damages.values():
        both.add(each)
    return {
        "flips": both.flips,
        "cuts": both.cuts,
        "files_removed_or_swapped": both.others,
        "detected": both.detected,
        "harmless": both.outcomes["harmless"],
        "cut_like_a_torn_record": both.outcomes["cut like a torn record"],
        "outcomes": dict(sorted(both.outcomes.items())),
        "wrong_answers_asked_again": both.wrong_answers,
        "repaired": both.repaired,
        "served_wrong": both.served_wrong + sum(each.served_wrong for each in results.s3),
        "s3_requests": sum(each.requests for each in results.s3),
        "s3_faults": faults.total(),
        "s3_faults_by_kind": dict(sorted(faults.items())),
        "s3_uploads": sum(each.uploads for each in results.s3),
        "s3_upload_tries": sum(each.upload_tries for each in results.s3),
        "s3_keys_given_up": sum(each.keys_given_up for each in results.s3),
        "s3_reads": sum(each.reads for each in results.s3),
        "s3_reads_refused": sum(each.read_errors for each in results.s3),
        "s3_committed_wrong": sum(each.committed_wrong for each in results.s3),
        "other_problems": len(results.problems),
    }


def last_line(counted: dict[str, Any]) -> str:
    """The summary."""
    keys = ("flips", "cuts", "detected", "served_wrong", "repaired")
    return "corruption: " + " ".join(f"{key}={counted[key]}" for key in keys)
