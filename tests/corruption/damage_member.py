"""Every Raft file of a placement driver damaged: it refuses to start, or starts with the truth.

The last record of a journal may be torn or rotten, nobody can tell, where neither a later record nor the vote file vouches
for it: it is cut, as a torn one must be. That is counted apart; everything that was vouched for must be there.
"""

from __future__ import annotations

from random import Random

from rangelog_core.errors import RangelogError
from tests.corruption.damage_tally import Damages, Thoroughness
from tests.crash_points.journal_workload import Member, MemberPromises, MemberWorkload
from tests.fakes.directory import Directory
from tests.fakes.faces import RaftDisk


class MemberDamage:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.tally = Damages()
        self._chance = Random(seed)
        self._promises = MemberPromises()
        files = RaftDisk()
        MemberWorkload(files, self._promises, seed).run(60)
        member = Member(files)
        self._entries = list(member.log.journal.entries)
        self._vote, self._commit = member.vote, member.log.getRaftCommitIndex()
        self._applied = list(member.applied.commands)
        self._content = files.directory.content()

    def run(self, how: Thoroughness) -> Damages:
        """Every file: flipped, cut, removed, put in another's place."""
        for name, content in self._content.items():
            for position, mask in how.flips(len(content), self._chance):
                self.tally.flips += 1
                changed = content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]
                self._try({name: changed}, f"{name}: bit {mask:#04x} of byte {position} flipped")
            for length in how.cuts(len(content), self._chance):
                self.tally.cuts += 1
                self._try({name: content[:length]}, f"{name}: cut at {length}")
            for other in self._content:
                self.tally.others += 1
                changed = self._content[other] if other != name else None
                self._try({name: changed}, f"{name}: removed" if changed is None else f"{name}: holds {other}")
        return self.tally

    def _try(self, changes: dict[str, bytes | None], what: str) -> None:
        content = {name: data for name, data in (self._content | changes).items() if data is not None}
        try:
            member = Member(RaftDisk(Directory.of(content)))
        except RangelogError:
            self.tally.outcomes["detected: it does not start"] += 1
            return
        except Exception as error:  # whatever else it is, nobody was told
            self.tally.problems.append(f"{what}: {type(error).__name__}: {error}")
            return
        entries = list(member.log.journal.entries)
        if member.vote != self._vote or member.applied.commands != self._applied:
            self.tally.served_wrong += 1
            self.tally.problems.append(f"{what}: vote {member.vote} for {self._vote}, or another state")
        elif entries != self._entries[: len(entries)]:
            self.tally.served_wrong += 1
            self.tally.problems.append(f"{what}: other entries")
        elif len(entries) < len(self._entries):
            self._judge_cut(member, what)
        else:
            self.tally.outcomes["harmless"] += 1

    def _judge_cut(self, member: Member, what: str) -> None:
        if member.log.journal.last_index < self._commit:
            self.tally.problems.append(f"{what}: entries up to {self._commit} were committed and are gone")
        self.tally.outcomes["cut like a torn record"] += 1
