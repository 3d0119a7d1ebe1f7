"""The tails of shards beside a list of all batches: what is kept is the last of it, consecutive, and within the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rangelog_broker.shards.tail import ENTRY_BYTES, FetchMemory, Tail
from rangelog_core.batch import BatchHeader

LIMIT = 6 * ENTRY_BYTES
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acked"), st.integers(0, 2), st.integers(1, 3), st.integers(2, ENTRY_BYTES)),
        st.tuples(st.just("unknown"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("taken"), st.integers(1, LIMIT)),
        st.tuples(st.just("given back")),
        st.tuples(st.just("closed"), st.integers(0, 2)),
    ),
    max_size=60,
)


def header(count: int) -> BatchHeader:
    """As of a batch that was encoded at offset 0."""
    return BatchHeader(0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0)


class Log:
    """One shard: its tail, and all batches that were acked since the tail began or began anew."""

    def __init__(self, memory: FetchMemory, end: int) -> None:
        self.tail = Tail(memory, end)
        self.end = end
        self.kept: list[tuple[int, int, bytes]] = []

    def check(self) -> None:
        """Everything in the tail is the last of what was acked."""
        tail = self.tail
        assert tail.end_offset == self.end
        if tail.start_offset == tail.end_offset:
            return
        expected = [each for each in self.kept if each[0] >= tail.start_offset]
        assert expected and expected[0][0] == tail.start_offset
        for offset in range(tail.start_offset, tail.end_offset):
            found = tail.batches_from(offset, 1 << 30)
            wanted = [each for each in expected if each[1] > offset]
            assert [(head.base_offset, head.end_offset, data) for head, data in found] == wanted
            assert tail.batches_from(offset, 1) == found[:1]
            assert tail.size_from(offset, 1 << 30) == sum(len(data) for _, _, data in wanted)


@given(STEPS)
def test_tails_are_the_last_batches_within_the_limit(steps: list[tuple[object, ...]]) -> None:
    """Whatever is acked, taken and closed, in whatever order."""
    memory = FetchMemory(LIMIT)
    logs = [Log(memory, 10 * number) for number in range(3)]
    taken: list[int] = []
    for step in steps:
        match step:
            case ("acked", int(number), int(count), int(size)):
                log, data = logs[number], bytes([number]) * size
                if not log.tail.is_closed:
                    log.kept.append((log.end, log.end + count, data))
                    log.tail.acked(log.end, log.end + count, (header(count), data))
                    log.end += count
            case ("unknown", int(number), int(count)):
                log = logs[number]
                if not log.tail.is_closed:
                    log.kept.clear()
                    log.tail.acked(log.end, log.end + count, None)
                    log.end += count
            case ("taken", int(size)):
                taken.append(size)
                memory.take(size)
            case ("given back",) if taken:
                memory.give_back(taken.pop())
            case ("closed", int(number)):
                logs[number].tail.close()
        for log in logs:
            log.check()
        held = sum(log.tail._size_bytes for log in logs)
        assert memory.tail_bytes == held and memory.taken_bytes == sum(taken)
        assert held + sum(taken) <= LIMIT or not held
        assert len(memory._order) == sum(len(log.tail._ends) - log.tail._first for log in logs)


def test_room_is_told_as_it_is_given_back() -> None:
    """Tails make room for what is taken; only what is taken makes others wait."""
    memory = FetchMemory(LIMIT)
    told: list[bool] = []
    memory.on_room = lambda: told.append(memory.has_room)
    tail = Tail(memory, 0)
    for offset in range(4):
        tail.acked(offset, offset + 1, (header(1), b"x"))
    memory.take(LIMIT)
    assert memory.tail_bytes == 0 and tail.start_offset == tail.end_offset == 4
    assert not memory.has_room
    memory.give_back(1)
    assert told == [True]
