"""Random histories: those of a correct log give no violation, and no way of spoiling one goes unnoticed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.history import Bounded, Ended, EndTold, Event, Final, History, Invoked, Refused, Saw, Started
from tests.support.log_checker import check_log

S = "s"


class Story:
    """A correct log, its writers one after the other with epochs that rise, their readers, a trim, two tiers."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.history = History()
        self.log: list[bytes] = []
        self.elsewhere: list[bytes] = []
        """Appended, and in no log."""
        self.now_s = 0.0
        self.trimmed = 0
        self.acked_end = self.told_end = 0
        self.times_ms: list[int] = []
        """Of the records in the log."""
        for epoch in range(1, self.dice.randrange(2, 5)):
            for writer in self._writers(epoch):
                self._write(writer, epoch)
        for reader in range(self.dice.randrange(3)):
            self._read(f"r{reader}", early=True)
            self._read_bounded(f"b{reader}")
        if self.dice.random() < 0.4:
            self.trimmed = self.dice.randrange(len(self.log) + 1)
            self.history.trimmed(S, self.trimmed, self._tick() + 0.01)  # it excuses nothing that was read before
        self._read("last", early=False)
        start = self.dice.randrange(self.trimmed + 1)
        self.history.final(S, "hot", start, self.log[start:], [hash(each) & 0xFFFF for each in self.log[start:]])
        tiered = self.dice.randrange(start, len(self.log) + 1)
        self.history.final(S, "object:1", start, self.log[start:tiered], whole=False)
        self.start = start

    def _tick(self) -> float:
        self.now_s += self.dice.choice((0.0, 0.1, 1.0))
        return self.now_s

    def _writers(self, epoch: int) -> Iterator[str]:
        yield f"w{epoch % 2}"  # a client that opens the stream again goes on with its numbers
        if self.dice.random() < 0.5:
            yield f"x{epoch}"

    def _write(self, writer: str, epoch: int) -> None:
        """Batches that are invoked before those in front have an outcome; the last ones may get none."""
        sequence = 1000 * epoch
        waiting: list[tuple[int, int, int | None]] = []
        for _ in range(self.dice.randrange(1, 8)):
            count = self.dice.randrange(1, 5)
            names = [f"{writer}:{sequence + index}".encode() for index in range(count)]
            times_ms = tuple(self.dice.randrange(50) for _ in names)
            self.history.note(Invoked(S, writer, epoch, sequence, tuple(names), self._tick(), None, times_ms))
            lands = self.dice.random() < 0.9
            waiting.append((sequence, count, len(self.log) if lands else None))
            (self.log if lands else self.elsewhere).extend(names)
            self.times_ms += times_ms if lands else ()
            self._ask()
            sequence += count
            while waiting and self.dice.random() < 0.5:
                self._end(writer, *waiting.pop(0))
        for each in waiting:
            if self.dice.random() < 0.7:
                self._end(writer, *each)

    def _end(self, writer: str, sequence: int, count: int, offset: int | None) -> None:
        if offset is None and self.dice.random() < 0.5:
            self.history.failed(S, writer, sequence, self._tick(), count)
        elif offset is None or self.dice.random() < 0.1:
            self.history.unknown(S, writer, sequence, self._tick(), count)
        else:
            self.history.ok(S, writer, sequence, offset, self._tick(), count)
            self.acked_end = max(self.acked_end, offset + count)
        self._ask()

    def _ask(self) -> None:
        """Somebody asks for the end, or starts at a time."""
        invoked_s = self._tick()
        exact = self.dice.random() < 0.7
        low = max(self.acked_end, self.told_end) if exact else 0
        if self.dice.random() < 0.3:
            end = self.dice.randrange(low, len(self.log) + 1)
            self.history.note(EndTold(S, "asks", end, invoked_s, self._tick(), exact))
            self.told_end = max(self.told_end, end)
        if self.dice.random() < 0.3:
            from_ms = self.dice.randrange(50)
            late = (at for at, time_ms in enumerate(self.times_ms) if time_ms >= from_ms)
            start = min(next(late, low), low)
            self.history.note(Started(S, "starts", from_ms, start, invoked_s, self._tick()))
        if self.dice.random() < 0.2:
            self.history.note(Refused(S, "asks", len(self.log) + 1, invoked_s, self._tick()))

    def _read_bounded(self, reader: str) -> None:
        start = self.dice.randrange(len(self.log) + 1)
        end = self.dice.randrange(start, len(self.log) + 1)
        if start < end:
            self.history.saw(S, reader, start, self.log[start:end], self._tick(), "hot")
        self.history.note(Bounded(S, reader, start, end, self._tick()))

    def _read(self, reader: str, *, early: bool) -> None:
        position = self.dice.randrange(len(self.log) + 1) if early else self.trimmed
        while position < len(self.log):
            end = min(len(self.log), position + self.dice.randrange(1, 6))
            self.history.saw(S, reader, position, self.log[position:end], self._tick(), "hot", len(self.log))
            position = end

    def pick(self, kind: type[Event]) -> int | None:
        """The place of some event of a kind."""
        places = [index for index, event in enumerate(self.history.events) if isinstance(event, kind)]
        return self.dice.choice(places) if places else None


def change_log(story: Story, change: Callable[[list[bytes]], list[bytes] | None]) -> bool:
    """Spoil what is read at the end; False when this story has nothing to spoil."""
    for index, event in enumerate(story.history.events):
        if isinstance(event, Final) and event.whole:
            new = change(list(event.identities))
            if new is None or new == list(event.identities):
                return False
            story.history.events[index] = replace(event, identities=tuple(new), crcs=None)
            return True
    raise AssertionError("no final read")


def acked_in_the_log(story: Story) -> list[tuple[int, Ended]]:
    """Acks of what is still there, with their places among the events."""
    return [
        (index, event)
        for index, event in enumerate(story.history.events)
        if isinstance(event, Ended) and event.outcome == "ok" and (event.offset or 0) >= story.start
    ]


def lose_an_acked_record(story: Story) -> bool:
    """It is cut out; what follows moves down."""
    acks = acked_in_the_log(story)
    if not acks:
        return False
    place = (story.dice.choice(acks)[1].offset or 0) - story.start
    return change_log(story, lambda log: log[:place] + log[place + 1 :])


def lose_the_tail(story: Story) -> bool:
    """Everything from an acked record on is gone."""
    acks = acked_in_the_log(story)
    if not acks:
        return False
    place = (story.dice.choice(acks)[1].offset or 0) - story.start
    return change_log(story, lambda log: log[:place])


def repeat_a_record(story: Story) -> bool:
    """One record is there once more."""
    return change_log(story, lambda log: [*log, story.dice.choice(log)] if log else None)


def swap_two_records(story: Story) -> bool:
    """Two neighbours of one batch change places."""

    def swap(log: list[bytes]) -> list[bytes] | None:
        writers = [each.partition(b":")[0] for each in log]
        places = [index for index in range(len(log) - 1) if writers[index] == writers[index + 1]]
        if not places:
            return None
        place = story.dice.choice(places)
        return [*log[:place], log[place + 1], log[place], *log[place + 2 :]]

    return change_log(story, swap)


def put_in_what_nobody_appended(story: Story) -> bool:
    """A record of nobody at the end."""
    return change_log(story, lambda log: [*log, b"nobody"])


def ack_elsewhere(story: Story) -> bool:
    """A writer is told another offset."""
    acks = acked_in_the_log(story)
    if not acks:
        return False
    place, event = story.dice.choice(acks)
    story.history.events[place] = replace(event, offset=(event.offset or 0) + story.dice.choice((-1, 1, 1000)))
    return True


def fail_what_landed(story: Story) -> bool:
    """A writer is told that nothing was appended."""
    acks = acked_in_the_log(story)
    if not acks:
        return False
    place, event = story.dice.choice(acks)
    story.history.events[place] = replace(event, outcome="failed", offset=None)
    return True


def show_a_reader_something_else(story: Story) -> bool:
    """One record of one poll is another."""
    place = story.pick(Saw)
    if place is None:
        return False
    event = story.history.events[place]
    assert isinstance(event, Saw)
    seen = list(event.identities)
    seen[story.dice.randrange(len(seen))] = story.dice.choice([*story.elsewhere, b"nobody"])
    story.history.events[place] = replace(event, identities=tuple(seen))
    return event.offset >= story.start or b"nobody" in seen


def skip_a_poll(story: Story) -> bool:
    """A reader misses what is between two polls; only a trim would excuse it."""
    polls = [place for place, event in enumerate(story.history.events) if isinstance(event, Saw)]
    readers = [event.reader for event in story.history.events if isinstance(event, Saw)]
    inner = [at for at in range(1, len(polls) - 1) if readers[at - 1] == readers[at] == readers[at + 1]]
    if not inner:
        return False
    del story.history.events[polls[story.dice.choice(inner)]]
    return True


def poll_again(story: Story) -> bool:
    """A reader is served the same once more."""
    place = story.pick(Saw)
    if place is None:
        return False
    story.history.events.insert(place, story.history.events[place])
    return True


def spoil_an_object(story: Story) -> bool:
    """The tier has another record."""
    event = story.history.events[-1]
    if not isinstance(event, Final) or not event.identities:
        return False
    story.history.events[-1] = replace(event, identities=(*event.identities[:-1], b"nobody"))
    return True


def acked_before(story: Story, time_s: float) -> int:
    """One past the last record that was acked before then."""
    acks = [each for each in story.history.events if isinstance(each, Ended) and each.outcome == "ok"]
    return max(((each.offset or 0) + each.count for each in acks if each.time_s < time_s), default=0)


def shorten_an_exact_end(story: Story) -> bool:
    """Somebody is told an end that leaves out what was acked before."""
    place = story.pick(EndTold)
    event = story.history.events[place] if place is not None else None
    if place is None or not isinstance(event, EndTold):
        return False
    acked = acked_before(story, event.invoked_s)
    if not acked:
        return False
    story.history.events[place] = replace(event, offset=story.dice.randrange(acked), exact=True)
    return True


def tell_an_end_that_vanishes(story: Story) -> bool:
    """Somebody is told an end beyond the log."""
    place = story.pick(EndTold)
    event = story.history.events[place] if place is not None else None
    if place is None or not isinstance(event, EndTold):
        return False
    story.history.events[place] = replace(event, offset=len(story.log) + 1)
    return True


def tell_an_end_too_early(story: Story) -> bool:
    """Somebody is told an end while the last record below it is not even appended."""
    told = [place for place, event in enumerate(story.history.events) if isinstance(event, EndTold) and event.offset]
    if not told:
        return False
    place = story.dice.choice(told)
    event = story.history.events[place]
    assert isinstance(event, EndTold)
    story.history.events[place] = replace(event, invoked_s=-1.0, time_s=-1.0, exact=False)
    return event.offset > story.start


def tell_a_lower_end_later(story: Story) -> bool:
    """Two who ask one after the other are told ends that go back."""
    told = [event for event in story.history.events if isinstance(event, EndTold) and event.offset]
    if not told:
        return False
    event = story.dice.choice(told)
    later_s = event.time_s + 0.01
    story.history.note(EndTold(S, "asks", event.offset - 1, later_s, later_s, exact=True))
    return True


def begin_too_late(story: Story) -> bool:
    """A start by time passes over a record."""
    place = story.pick(Started)
    event = story.history.events[place] if place is not None else None
    if place is None or not isinstance(event, Started):
        return False
    acks = [each for each in story.history.events if isinstance(each, Ended) and each.outcome == "ok"]
    for ack in acks:
        late = story.times_ms[ack.offset or 0] >= event.timestamp_ms
        if late and ack.time_s < event.invoked_s:
            story.history.events[place] = replace(event, offset=(ack.offset or 0) + 1)
            return True
    return False


def claim_more_than_was_given(story: Story) -> bool:
    """A reader ends without an error, and short of its end, or begins behind its start."""
    place = story.pick(Bounded)
    event = story.history.events[place] if place is not None else None
    if place is None or not isinstance(event, Bounded):
        return False
    wider = replace(event, end=event.end + 1)
    if story.dice.random() < 0.5 and event.start:
        wider = replace(event, start=event.start - 1)
    story.history.events[place] = wider
    return True


def refuse_a_known_position(story: Story) -> bool:
    """A reader is told that what was acked before is beyond the end."""
    invoked_s = story.dice.uniform(0.0, story.now_s)
    acked = acked_before(story, invoked_s)
    if not acked:
        return False
    story.history.note(Refused(S, "asks", story.dice.randrange(1, acked + 1), invoked_s, invoked_s))
    return True


def tell_of_a_trim(story: Story) -> bool:
    """A reader is told of a trim that nobody asked for."""
    story.history.note(Refused(S, "asks", 0, story.now_s, story.now_s, trimmed=story.trimmed + 1))
    return True


SPOILERS = [
    shorten_an_exact_end,
    tell_an_end_that_vanishes,
    tell_an_end_too_early,
    tell_a_lower_end_later,
    begin_too_late,
    claim_more_than_was_given,
    refuse_a_known_position,
    tell_of_a_trim,
    lose_an_acked_record,
    lose_the_tail,
    repeat_a_record,
    swap_two_records,
    put_in_what_nobody_appended,
    ack_elsewhere,
    fail_what_landed,
    show_a_reader_something_else,
    skip_a_poll,
    poll_again,
    spoil_an_object,
]


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=300, deadline=None)
def test_a_correct_log_gives_no_violation(seed: int) -> None:
    """Whatever writers, readers and trims do at once, a correct log is never blamed."""
    story = Story(seed)
    report = check_log(story.history.events)
    assert report.clean, report.violations
    assert report.final == len(story.log) - story.start


@given(seed=st.integers(0, 1 << 32), spoiler=st.sampled_from(SPOILERS))
@settings(max_examples=300, deadline=None)
def test_no_spoiled_history_goes_unnoticed(seed: int, spoiler: Callable[[Story], bool]) -> None:
    """Each way of spoiling is found in every story in which it changes something."""
    story = Story(seed)
    if spoiler(story):
        assert not check_log(story.history.events).clean


def test_every_way_of_spoiling_applies_often() -> None:
    """None of the ways is vacuous: each finds something to spoil in at least a third of the stories."""
    for spoiler in SPOILERS:
        assert sum(spoiler(Story(seed)) for seed in range(60)) >= 20, spoiler.__name__


@pytest.mark.measure
def test_it_keeps_its_pace() -> None:
    """100,000 records take less than 5 s of processor time (seen: 0.6 s), so that a long run can be judged at all."""
    history = History()
    for first in range(0, 100_000, 100):
        names = [b"w:%d" % number for number in range(first, first + 100)]
        history.invoked(S, "w", first, names, first * 1e-4, 1)
        history.ok(S, "w", first, first, first * 1e-4 + 0.5, 100)
        history.saw(S, "r", first, names, first * 1e-4 + 1)
        history.final(S, "hot", first, names)
    began = time.process_time()
    report = check_log(history.events)
    assert report.clean
    assert report.acked == 100_000
    assert time.process_time() - began < 5
