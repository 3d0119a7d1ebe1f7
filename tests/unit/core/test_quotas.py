"""RateBuckets and the book of quotas: how long to wait, for whom, and what is refused. No clock but the test's."""

from __future__ import annotations

import random

import pytest

from rangelog_core import quotas as module
from rangelog_core.errors import InvalidArgument
from rangelog_core.quotas import (
    BURST_MS,
    BYTES_PER_S_MAX,
    BYTES_PER_S_MIN,
    CALLS_PER_S_MAX,
    DEBT_MS_MAX,
    NAMELESS,
    Measure,
    QuotaBook,
    RateBucket,
    charge,
    check_key,
    check_quota,
    owed_us,
)
from rangelog_proto.v1 import quotas_pb2 as pb

S = 1_000_000
RATE = 1_000_000


def quota(principal: str = "", prefix: str = "", append: int = 0, read: int = 0, calls: int = 0) -> pb.Quota:
    return pb.Quota(
        principal=principal, prefix=prefix, append_bytes_per_s=append, read_bytes_per_s=read, calls_per_s=calls
    )


def book(*quotas: pb.Quota, version: int = 1) -> QuotaBook:
    made = QuotaBook()
    made.load(quotas, version)
    return made


def rates(found: object) -> list[int]:
    return [each.rate for each in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("rate", [65_537, 999_983, 1_000_000, 3 * 10**9, 7])
@pytest.mark.parametrize("seed", range(3))
def test_who_waits_as_told_takes_the_rate_exactly(rate: int, seed: int) -> None:
    """However the bytes are divided: after any time no more than rate x time and one burst, and no less than the rate."""
    chance = random.Random(seed)
    bucket, now_us, taken = RateBucket(rate), 0, 0
    while now_us < 60 * S:
        units = chance.randrange(1, max(2, rate // 5))
        now_us += bucket.charge(now_us, units)
        taken += units
        assert taken * S <= rate * (now_us + BURST_MS * 1000) + rate
    assert taken * S >= rate * now_us


def test_idle_time_is_not_saved_beyond_the_burst() -> None:
    """After an hour as much is free as after half a second."""
    bucket = RateBucket(RATE)
    bucket.charge(0, RATE)
    burst = RATE * BURST_MS // 1000
    assert bucket.charge(3600 * S, burst) == 0
    assert bucket.charge(3600 * S, 1000) == 1000


def test_no_more_is_owed_than_the_limit() -> None:
    """A client that does not wait closes its name for no longer than that."""
    bucket = RateBucket(RATE)
    for _ in range(100):
        owed = bucket.charge(0, 100 * RATE)
    assert owed == DEBT_MS_MAX * 1000
    assert bucket.owed_us(DEBT_MS_MAX * 1000) == 0


def test_a_clock_that_goes_backwards_stands() -> None:
    """Neither is anything forgiven, nor does anybody wait longer."""
    bucket = RateBucket(RATE)
    owed = bucket.charge(10 * S, RATE)
    assert bucket.owed_us(1 * S) == owed
    assert bucket.charge(2 * S, 0) == owed
    assert bucket.owed_us(10 * S + owed) == 0


def test_delays_of_several_quotas_pass_at_once() -> None:
    """The longest counts, not the sum."""
    slow, fast = RateBucket(RATE), RateBucket(2 * RATE)
    assert charge((slow, fast), 0, 2 * RATE) == max(2 * S, 1 * S) - BURST_MS * 1000
    assert owed_us((slow, fast), 0) == 2 * S - BURST_MS * 1000
    assert charge((), 0, 10) == owed_us((), 0) == 0


def test_who_has_no_quota_of_its_own_has_that_of_everybody_for_itself() -> None:
    """Each such client by itself; one with its own is not under the other; the nameless are one client."""
    known = book(quota("*", append=RATE, read=5 * RATE), quota("client:a", append=2 * RATE))
    assert rates(known.buckets("client:a", None, Measure.APPEND)) == [2 * RATE]
    assert known.buckets("client:a", None, Measure.READ) == ()
    (b,), (c,) = (known.buckets(f"client:{name}", None, Measure.APPEND) for name in "bc")
    b.charge(0, 10 * RATE)
    assert b.rate == c.rate == RATE and not c.owed_us(0)
    assert known.buckets("client:b", None, Measure.APPEND) == (b,)
    assert rates(known.buckets(NAMELESS, None, Measure.APPEND)) == [RATE]


def test_prefixes_count_for_all_clients_together() -> None:
    """All prefixes of a name count, with the client's own; a name that is not known yet has none."""
    known = book(
        quota(prefix="orders/", append=4 * RATE), quota(prefix="orders/eu", append=RATE), quota("client:a", append=RATE)
    )
    found = known.buckets("client:b", "orders/eu-1", Measure.APPEND)
    assert rates(found) == [4 * RATE, RATE]
    assert known.buckets("client:c", "orders/eu-1", Measure.APPEND) == found
    assert rates(known.buckets("client:a", "orders/us", Measure.APPEND)) == [RATE, 4 * RATE]
    assert known.buckets("client:b", "order", Measure.APPEND) == known.buckets("client:b", None, Measure.APPEND) == ()


def test_a_quota_ends_when_it_is_removed_and_begins_anew_when_it_is_changed() -> None:
    """One that stays is owed further."""
    a, b = quota("client:a", append=RATE), quota("client:b", append=RATE)
    known = book(a, b)
    for name in "ab":
        (bucket,) = known.buckets(f"client:{name}", None, Measure.APPEND)
        bucket.charge(0, 10 * RATE)
    known.load([a, quota("client:b", append=2 * RATE)], 2)
    assert owed_us(known.buckets("client:a", None, Measure.APPEND), 0) > 0
    assert owed_us(known.buckets("client:b", None, Measure.APPEND), 0) == 0
    known.load([b], 3)
    assert known.any and known.buckets("client:a", None, Measure.APPEND) == ()
    known.load([], 4)
    assert not known.any and len(known) == 0


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was used least recently goes."""
    monkeypatch.setattr(module, "BUCKETS_MAX", 3)
    known = book(quota("*", append=RATE))
    first, second, _ = (known.buckets(f"client:{name}", None, Measure.APPEND) for name in "abc")
    assert known.buckets("client:a", None, Measure.APPEND) == first
    known.buckets("client:d", None, Measure.APPEND)
    assert len(known) == 3
    assert known.buckets("client:a", None, Measure.APPEND) == first
    assert known.buckets("client:b", None, Measure.APPEND) != second


@pytest.mark.parametrize(
    ("principal", "prefix", "told"),
    [
        ("", "", "give --principal or --prefix"), ("client:a", "b", "one of them"), ("admin:a", "", "client:NAME"),
        ("client:", "", "client"), ("client:a b", "", "client"), ("alice", "", "client:NAME"), ("", "a/b/c", "begins no name"),
        ("", "x" * 500, "begins no name"), ("", "a\n", "begins no name"), ("", " ", "begins no name"),
        ("", "_topic-1", "internal streams"),
    ],
)  # fmt: skip
def test_what_names_nobody(principal: str, prefix: str, told: str) -> None:
    """Refused, with what to write."""
    with pytest.raises(InvalidArgument, match=told):
        check_key(principal, prefix)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (quota("client:a"), "above 0"), (quota("client:a", append=BYTES_PER_S_MIN - 1), "from 65,536"),
        (quota("client:a", read=BYTES_PER_S_MAX + 1), "read_bytes_per_s is from"),
        (quota("client:a", calls=CALLS_PER_S_MAX + 1), "calls_per_s is from"), (quota(prefix="a", calls=5), "by principal"),
    ],
)  # fmt: skip
def test_figures_that_are_none(bad: pb.Quota, told: str) -> None:
    """Zero, too small, absurd, and calls of a prefix."""
    with pytest.raises(InvalidArgument, match=told):
        check_quota(bad)


def test_what_may_be_set() -> None:
    """Clients of certificates, tokens and other issuers; streams and namespaces."""
    for each in (
        quota("client:a", append=BYTES_PER_S_MIN), quota("*", calls=1), quota("client:sso:ann@example.org", read=RATE),
        quota(prefix="orders/", append=RATE), quota(prefix="jobs-", read=BYTES_PER_S_MAX),
    ):  # fmt: skip
        check_quota(each)
