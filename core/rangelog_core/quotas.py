"""Quotas: what a client, or all clients of a name prefix, may append, read and call, and how long to hold them off. No I/O.

What holds: time goes in, a delay comes out; a clock that goes backwards counts as one that stands. Figures are whole numbers,
and no fraction is lost, so a rate is exact however it is divided. After idle time at most BURST_MS of a rate is free at once;
at most DEBT_MS_MAX is owed. The number of buckets is bounded: the least recently used is forgotten, and begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import KIB, NAME_LENGTH_MAX
from rangelog_core.rights import CLIENT_START, EVERY_CLIENT, check_client_name
from rangelog_proto.v1 import quotas_pb2 as pb

BURST_MS = 500
"""Of a rate, after idle time: who pauses for less has lost nothing."""
DEBT_MS_MAX = 30_000
"""Nobody is held off for longer, so that one burst of clients that do not wait does not close a name for ever."""
QUOTAS_MAX = 1_000
BUCKETS_MAX = 10_000
BYTES_PER_S_MIN = 64 * KIB
"""Below it one batch of the largest size that a writer builds would take longer than DEBT_MS_MAX."""
BYTES_PER_S_MAX = 1 << 40
CALLS_PER_S_MAX = 1_000_000
PREFIX_LENGTH_MAX = 2 * NAME_LENGTH_MAX + 1
NAMELESS = "client:"
"""Those whom nobody knows, without TLS, are one client. It has no quota of its own: that of `*` is for it."""
_US = 1_000_000
_SHOWN = 100


class Measure(IntEnum):
    """The unit of a rate."""

    APPEND = 0
    READ = 1
    CALLS = 2


FIELDS = {
    Measure.APPEND: "append_bytes_per_s",
    Measure.READ: "read_bytes_per_s",
    Measure.CALLS: "calls_per_s",
}


class RateBucket:
    """One rate, and until when it is used up. `now_us` is of one monotonic clock.

    Example: `RateBucket(1_000_000).charge(now_us, 65_536)`.
    """

    __slots__ = ("_free_us", "_now_us", "_rest", "rate")

    def __init__(self, rate: int) -> None:
        """`rate`: per second, at least 1."""
        self.rate = rate
        self._free_us: int | None = None  # from then on nothing is owed
        self._rest = 0  # of a microsecond, in parts of `rate`
        self._now_us = 0

    def owed_us(self, now_us: int) -> int:
        """Return for how long to wait before anything more is taken, in µs; 0: not at all."""
        self._now_us = now_us = max(now_us, self._now_us)
        return max(0, self._free_us - now_us) if self._free_us is not None else 0

    def charge(self, now_us: int, units: int) -> int:
        """Count what was taken; return for how long to wait before more is taken, in µs."""
        self._now_us = now_us = max(now_us, self._now_us)
        earliest_us = now_us - BURST_MS * 1000
        if self._free_us is None or self._free_us < earliest_us:
            self._free_us, self._rest = earliest_us, 0
        took_us, self._rest = divmod(units * _US + self._rest, self.rate)
        self._free_us = min(self._free_us + took_us, now_us + DEBT_MS_MAX * 1000)
        return max(0, self._free_us - now_us)


RateBuckets = Sequence[RateBucket]


def owed_us(buckets: RateBuckets, now_us: int) -> int:
    """Return for how long to wait before anything more is taken: the longest of all."""
    return max([each.owed_us(now_us) for each in buckets], default=0)


def charge(buckets: RateBuckets, now_us: int, units: int) -> int:
    """Count what was taken, in all buckets; return for how long to wait: the longest of all, since they pass at once."""
    return max([each.charge(now_us, units) for each in buckets], default=0)


class QuotaBook:
    """The quotas that a process knows, and their buckets. `version` changes with them: then buckets are looked up again."""

    def __init__(self) -> None:
        self.version = 0
        self.any = False
        """Whether there is a quota at all: where there is none this is all that is looked at."""
        self.any_prefix = False
        self._principals: dict[str, pb.Quota] = {}
        self._prefixes: dict[str, pb.Quota] = {}
        self._lengths: Sequence[int] = ()
        self._buckets: dict[tuple[bool, str, Measure], RateBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def load(self, quotas: Iterable[pb.Quota], version: int) -> None:
        """Take all quotas of a version in place of those before. The debt of a rate that stays is kept."""
        self._principals, self._prefixes = {}, {}
        for each in quotas:
            if each.prefix:
                self._prefixes[each.prefix] = each
            else:
                self._principals[each.principal] = each
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self.any, self.any_prefix = bool(self._principals or self._prefixes), bool(self._prefixes)
        self.version = version
        for key, bucket in list(self._buckets.items()):
            if self._rate(*key) != bucket.rate:
                del self._buckets[key]

    def buckets(self, principal: str, name: str | None, measure: Measure) -> RateBuckets:
        """Return what counts for a client and a name; None: for no name, or for one that is not known yet."""
        if not self.any:
            return ()
        found = [self._bucket(False, principal, measure)]
        if name is not None and self._prefixes:
            found += [self._bucket(True, name[:length], measure) for length in self._lengths if length <= len(name)]
        return tuple(each for each in found if each is not None)

    def _rate(self, is_prefix: bool, of: str, measure: Measure) -> int:
        quota = self._prefixes.get(of) if is_prefix else self._principals.get(of) or self._principals.get(EVERY_CLIENT)
        return int(getattr(quota, FIELDS[measure])) if quota is not None else 0

    def _bucket(self, is_prefix: bool, of: str, measure: Measure) -> RateBucket | None:
        rate = self._rate(is_prefix, of, measure)
        if not rate:
            return None
        key = (is_prefix, of, measure)
        bucket = self._buckets.pop(key, None) or RateBucket(rate)
        while len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket


def key_of(quota: pb.Quota | pb.SetQuotaRequest | pb.RemoveQuotaRequest) -> tuple[str, str]:
    """Return what a quota is kept under: principal and prefix, one of them empty."""
    return quota.principal, quota.prefix


def check_key(principal: str, prefix: str) -> None:
    """Raise InvalidArgument unless this names a client, every client, or a prefix of names."""
    if bool(principal) == bool(prefix):
        raise InvalidArgument(
            "a quota is for a principal or for a prefix of names: give --principal or --prefix, one of them"
        )
    if prefix:
        if (
            len(prefix) > PREFIX_LENGTH_MAX
            or not prefix.isprintable()
            or prefix != prefix.strip()
            or prefix.count("/") > 1
        ):
            raise InvalidArgument(
                f"{prefix[:_SHOWN]!r} begins no name: a prefix is the beginning of a stream's name, or NAMESPACE/ for all "
                "topics of a namespace"
            )
        if prefix.startswith("_"):
            raise InvalidArgument("internal streams have no quotas: name the topic, as NAMESPACE/NAME")
        return
    if principal == EVERY_CLIENT:
        return
    if not principal.startswith(CLIENT_START):
        raise InvalidArgument(
            f"quotas are for clients: name client:NAME, or {EVERY_CLIENT} for each that has no quota of its own, not "
            f"{principal[:_SHOWN]!r}"
        )
    check_client_name(principal.removeprefix(CLIENT_START))


def check_quota(quota: pb.Quota) -> None:
    """Raise InvalidArgument unless a quota may be kept."""
    check_key(quota.principal, quota.prefix)
    if quota.prefix and quota.calls_per_s:
        raise InvalidArgument("calls are counted by principal: give --calls-per-s with --principal")
    rates = {field: int(getattr(quota, field)) for field in FIELDS.values()}
    if not any(rates.values()):
        raise InvalidArgument("a quota limits something: give a rate above 0, or `pdctl quota remove`")
    for field, rate in rates.items():
        lowest, highest = (1, CALLS_PER_S_MAX) if field == FIELDS[Measure.CALLS] else (BYTES_PER_S_MIN, BYTES_PER_S_MAX)
        if rate and not lowest <= rate <= highest:
            raise InvalidArgument(f"{field} is from {lowest:,} to {highest:,}, not {rate:,}")
