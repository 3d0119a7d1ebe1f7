"""Random histories: those of a correct log give no violation, and no way of spoiling one goes unnoticed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from history import Ended, Event, Final, History, Saw
from hypothesis import given, settings
from hypothesis import strategies as st
from log_checker import check_log

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
        for epoch in range(1, self.dice.randrange(2, 5)):
            for writer in self._writers(epoch):
                self._write(writer, epoch)
        for reader in range(self.dice.randrange(3)):
            self._read(f"r{reader}", early=True)
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
            self.history.invoked(S, writer, sequence, names, self._tick(), epoch)
            lands = self.dice.random() < 0.9
            waiting.append((sequence, count, len(self.log) if lands else None))
            (self.log if lands else self.elsewhere).extend(names)
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
    assert isinstance(event, Final)
    if not event.identities:
        return False
    story.history.events[-1] = replace(event, identities=(*event.identities[:-1], b"nobody"))
    return True


SPOILERS = [
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
