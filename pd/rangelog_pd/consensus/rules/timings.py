"""The times of a member's Raft, and which of them a setting changes.

What holds: for members whose disks are whole, whatever values they have, also where they have different ones:

- no time decides what is committed or what a read returns: a vote, an entry and a read need a majority each, and a read without
  an entry is answered after a round of leader checks that began after it (leader_checks.py), never by a lease. So a member with
  a short election time-out takes the lead often, one with a long one takes it late; neither is unsafe.

A member whose disk is new has forgotten its votes, and is safe because it hears the leader before it stands for election, which
is a matter of time. So a setting only lengthens the time-outs, from the default on, and members had better have the same.

Besides:

- the heartbeat is the same on all members and at most a fifth of every election time-out (HEARTBEAT_S, ELECTION_MS_MIN): a
  leader is heard in time by members with other values than its own;
- a leader that does not hear a majority gives up after its longest election time-out;
- a silent connection is closed no earlier than that: a closed one begins an election soon.
"""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEAT_S = 0.1
ELECTION_MS_MIN, ELECTION_MS_MAX = 500, 1_000
"""The defaults; the first is the least of both settings, too."""
ELECTION_MS_MOST = 60_000
CONNECTION_SILENT_S = 3.0


@dataclass(frozen=True)
class Timings:
    """Times in seconds. An election starts election_min..max after the leader's last message, or when its connection closes."""

    heartbeat_s: float = HEARTBEAT_S
    election_min_s: float = ELECTION_MS_MIN / 1000
    election_max_s: float = ELECTION_MS_MAX / 1000
    leader_fallback_s: float = ELECTION_MS_MAX / 1000
    connection_silent_s: float = CONNECTION_SILENT_S
    connect_retry_s: float = 0.2
    tick_s: float = 0.02

    @staticmethod
    def of_elections(ms_min: int, ms_max: int) -> Timings:
        """Return the timings of a group with these election time-outs, which the settings have checked."""
        return Timings(
            election_min_s=ms_min / 1000,
            election_max_s=ms_max / 1000,
            leader_fallback_s=ms_max / 1000,
            connection_silent_s=max(CONNECTION_SILENT_S, ms_max / 1000),
        )

    @staticmethod
    def single() -> Timings:
        """Return the timings of a group of one, which waits for no other member."""
        return Timings(heartbeat_s=0.01, election_min_s=0.04, election_max_s=0.05)
