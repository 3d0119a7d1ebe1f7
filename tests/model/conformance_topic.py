"""Walks through the model of a topic, taken by the product in step: owners, tables, producers, the placement driver.

Each label of a step is carried out with the product's own classes; then logs, acks, what is without an outcome and the map must
be what the model has. What the model does not offer, the product must refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

from rangelog._produce.core import MappedShard
from rangelog_broker.shards.owner import InFlight
from rangelog_broker.shards.producer_table import ProducerTable, Standing
from rangelog_core.errors import PreconditionFailed, RangelogError, StreamSealed, TopicStateForbids, WriterFenced
from rangelog_proto.v1 import topic_pb2
from tests.model.conformance_topic_driver import TopicDriver
from tests.model.conformance_topic_producer import ProducerSide
from tests.model.conformance_topic_shards import AFTER_ALL, ShardSide
from tests.model.conformance_walks import OutOfStep, Step
from tests.model.topic_model import TopicModel
from tests.model.topic_owners import AWAY, HELD, MISSING, STALE, TAKE
from tests.model.topic_state import CURRENT, LEVEL, RUNNING, SHARD, SHARDS, Batch, Sent, State, Topic

WEIGHTS = {"has the ack": 0.4, "TAKEOVER": 0.3, "expire": 0.15, "snapshot": 0.05, "is closed": 0.2, "starts": 0.3}
"""How likely a step with this word is beside the others."""

_SHARD = r"(root|low|high|joined)"
_ITEM = r"(\w+):(\d)\(([\d,]+)\)"
STEPS: dict[str, str] = {
    r"(\d) (?:starts with|learns) the map of level (\d)": "_learn",
    rf"(\d) numbers {_ITEM}": "_number",
    rf"(\d) has the ack of {_ITEM} at (\d+)": "_ack",
    rf"(\d) has an ack of {_ITEM} at (\d+) of {_SHARD}": "_ack_of_owner",
    rf"(\d) asks for {_ITEM}: it is at (\d)": "_ask",
    rf"(\d) asks for {_ITEM}: (it is not there|fenced)": "_ask",
    rf"{_SHARD} takes (\d)/{_ITEM}": "_take",
    rf"{_SHARD} takes a late copy of (\d)/(\d)": "_take_copy",
    rf"{_SHARD} refuses (\d)/{_ITEM}: fenced": "_fence",
    rf"{_SHARD} has forgotten the offset of (\d)/{_ITEM}": "_forgotten",
    rf"{_SHARD}: (\d)/(\d) is durable": "_land",
    rf"{_SHARD}: TAKEOVER, (\d) in flight land": "_take_over",
    rf"{_SHARD}: a snapshot at (\d)(, without .*)?": "_save",
    rf"{_SHARD}: the table lets instance (\d) expire": "_expire",
    rf"{_SHARD}: is closed at (\d), (\d) in flight land": "_close",
    rf"{_SHARD}: is closed, with an end below its log's": "_close_below",
    rf"{_SHARD}: its owner goes on under the same epoch": "_go_on",
    r"the placement driver commits the map of level (\d)": "_commit",
}
"""The labels of the model's steps, and the method of `TopicWalk` that takes each; the words in brackets are its arguments."""

WRONG_STEPS = ("_ack_of_owner", "_take_copy", "_forgotten", "_close_below", "_go_on")
"""Steps that only wrong choices take."""


class CannotFollow(Exception):
    """The product cannot be led this way, though it has done nothing that the model has not."""


class TopicWalk:
    """The product's side of one walk. `led`: along a given way."""

    def __init__(self, instance: Topic, *, led: bool = False) -> None:
        self.instance = instance
        self.model = TopicModel(instance)
        self.driver = TopicDriver()
        self.side = ShardSide(instance)
        self.producers = [ProducerSide(instance, who) for who in range(len(instance.sends))]
        self.maps: list[tuple[int, list[MappedShard]]] = []
        self.taken = {pattern: 0 for pattern, method in STEPS.items() if method not in WRONG_STEPS}
        self.refused = 0  # what the product was asked though the model does not offer it
        self._led = led
        self._before: State
        self._after: State
        self.driver.open(0, 0)
        self.side.open(0)
        self._note_map()
        for who, (_, epoch, _) in enumerate(instance.sends):
            if epoch == 1:
                self.producers[who].mapped(*self.maps[0])

    # ---- Product

    def start(self) -> State:
        """The model's first state."""
        return self.instance.initial()

    def steps(self, state: State) -> Iterator[Step]:
        """What the model can do."""
        return self.model.successors(state)

    def fold(self, state: State) -> State:
        """States are as they are."""
        return state

    def take(self, label: str, before: State, after: State) -> bool:
        """Do as the label says; return whether the product could."""
        self._before, self._after = before, after
        for pattern, method in STEPS.items():
            match = re.fullmatch(pattern, label)
            if match is not None:
                done = getattr(self, method)(*match.groups()) is not False
                if pattern in self.taken:
                    self.taken[pattern] += done
                if self._led and not done:
                    raise CannotFollow(label)
                return done
        raise AssertionError(f"the product's side of {label!r} is missing")

    def narrowed(self, state: State, offered: Sequence[Step]) -> Sequence[Step]:
        """What the core of a producer has numbered is numbered next."""
        for who, producer in enumerate(self.producers):
            if producer.sent:
                text = f"{who} numbers {_text(producer.sent[0])}"
                found = [step for step in offered if step[0] == text]
                if not found:
                    raise OutOfStep(f"the core numbers what the model cannot: {text}")
                return found
        return () if all("snapshot" in label for label, _ in offered) else offered

    def compare(self, state: State, random: Random) -> None:
        """Assert that the product stands where the model does."""
        for at in SHARDS:
            self.side.compare(at, state.shards[at])
            if LEVEL[at] <= state.level:
                assert self.driver.stream(at).epoch == state.shards[at].epoch + 1
                assert self.driver.stream(at).sealed_for_good == (LEVEL[at] < state.level)
        for mine, theirs in zip(self.producers, state.producers, strict=True):
            if theirs.status == RUNNING:
                mine.compare(theirs)
        assert self.driver.current() == list(CURRENT[state.level]), "the current shards tile the key space (T4)"
        if random.random() < 0.4:
            self._ask_owners(state)
            self._refuse(state)
            self._map_late(state)
        if not self._led and random.random() < 0.05:
            for mine, theirs in zip(self.producers, state.producers, strict=True):
                if theirs.status == RUNNING:
                    mine.connect(theirs)

    # ---- producers

    def _learn(self, who: str, level: str) -> None:
        assert int(level) < len(self.maps), "there is no such map"
        self.producers[int(who)].mapped(*self.maps[int(level)])

    def _number(self, who: str, *item: str) -> bool:
        return self.producers[int(who)].number(self._before.producers[int(who)], _item(*item))

    def _ack(self, who: str, shard: str, sequence: str, records: str, offset: str) -> None:
        item = _item(shard, sequence, records)
        place = self.side.logs[item.shard].offset(int(offset))
        if self._before.shards[item.shard].taking:
            found = self.side.offer(item.shard, _batch(who, item))
            assert not isinstance(found, InFlight)
            assert found.standing in (Standing.HELD, Standing.FENCED)
            assert found.standing is Standing.FENCED or found.offset == place, "the first ack's offset"
        self.producers[int(who)].ack(item, place)

    def _ack_of_owner(self, who: str, shard: str, sequence: str, records: str, *_: str) -> None:
        item = _item(shard, sequence, records)
        found = self.side.offer(item.shard, _batch(who, item))
        assert not isinstance(found, InFlight), "a retry in flight waits"
        assert found.standing is Standing.HELD

    def _ask(self, who: str, shard: str, sequence: str, records: str, answer: str) -> None:
        item = _item(shard, sequence, records)
        table = self.final_table(item.shard)
        producer = self.side.producer(_batch(who, item))
        found = table.find(producer)
        if answer == "fenced" and found.standing is not Standing.FENCED:
            table.expire(AFTER_ALL)
            found = table.find(producer)
        side = self.producers[int(who)]
        if found.standing is Standing.FENCED:
            assert answer == "fenced"
            side.fence()
        elif found.standing is Standing.HELD:
            assert answer.isdigit() and found.offset == self.side.logs[item.shard].offset(int(answer))
            side.answer(item, found.offset)
        else:
            assert found.standing is not Standing.FORGOTTEN
            assert answer == "it is not there"
            side.answer(item, None)

    def final_table(self, at: int) -> ProducerTable:
        """Return the table of an ended shard."""
        shard = self.driver.shard(at)
        assert shard.ended_version, "the shard has not ended"
        assert shard.end_offset == self.side.logs[at].end_offset
        return self.side.table(at)

    # ---- owners

    def _take(self, shard: str, who: str, *item: str) -> None:
        self._offer(_at(shard), _batch(who, _item(*item)), Standing.NEXT)

    def _take_copy(self, shard: str, who: str, sequence: str) -> None:
        batch = self._after.shards[_at(shard)].tail[-1]
        self._offer(_at(shard), batch, Standing.NEXT)

    def _forgotten(self, shard: str, who: str, *item: str) -> None:
        self._offer(_at(shard), _batch(who, _item(*item)), Standing.FORGOTTEN)

    def _fence(self, shard: str, who: str, *item: str) -> None:
        self._offer(_at(shard), _batch(who, _item(*item)), Standing.FENCED)
        self.producers[int(who)].fence()

    def _offer(self, at: int, batch: Batch, standing: Standing) -> None:
        found = self.side.offer(at, batch)
        assert not isinstance(found, InFlight), f"{batch} is in flight"
        assert found.standing is standing, f"{batch} is {found.standing}"

    def _land(self, shard: str, *_: str) -> None:
        self.side.land(_at(shard))

    def _take_over(self, shard: str, landed: str) -> None:
        at = _at(shard)
        log = self.side.logs[at]
        end = log.landing[int(landed) - 1].end_offset if int(landed) else log.end_offset
        self.driver.open(at, end)
        self.side.open(at, int(landed))

    def _save(self, shard: str, count: str, without: str | None) -> None:
        self.side.save(_at(shard), int(count), expired=without is not None)

    def _expire(self, shard: str, who: str) -> None:
        owner = self.side.logs[_at(shard)].owner
        assert owner is not None
        owner.table.expire(AFTER_ALL)

    def _close(self, shard: str, end: str, landed: str) -> None:
        at = _at(shard)
        self.driver.start_scale(self._before.level)
        self.side.settle(at, int(landed))
        self.driver.seal(at, self.driver.stream(at).epoch, self.side.logs[at].end_offset)

    def _close_below(self, shard: str) -> None:
        self._close(shard, "", str(len(self._before.shards[_at(shard)].tail)))

    def _go_on(self, shard: str) -> None:
        """An owner that sealed its range begins another one."""
        at = _at(shard)
        self.driver.begin_range(at, self.side.logs[at].end_offset)
        self.side.open(at)

    def _commit(self, level: str) -> None:
        self.driver.commit_scale(self._ends(self._before))
        for at in CURRENT[int(level)]:
            self.driver.open(at, 0)
            self.side.open(at)
        for at in CURRENT[int(level) - 1]:
            self.side.settle(at, 0)
        self._note_map()

    def _ends(self, state: State) -> list[topic_pb2.ShardEnd]:
        ends = []
        for at in CURRENT[state.level]:
            claim = state.shards[at].claim
            assert claim is not None
            ends.append(self.driver.end_of(at, claim[0] + 1, self.side.logs[at].offset(claim[1])))
        return ends

    def _note_map(self) -> None:
        self.maps.append((self.driver.topic.map_version, self.driver.mapped()))

    # ---- what the model does not offer

    def _ask_owners(self, state: State) -> None:
        """Batches that are not taken: the owner finds of each what the model finds, and changes nothing."""
        for who, producer in enumerate(state.producers):
            for item in producer.unresolved:
                if not state.shards[item.shard].taking:
                    continue
                batch = _batch(str(who), item)
                standing, offset, _ = self.model.owners.standing(state.shards, item.shard, batch)
                if standing == TAKE:
                    continue
                found = self.side.offer(item.shard, batch)
                durable = offset < len(state.shards[item.shard].log)
                if isinstance(found, InFlight):
                    assert standing == HELD and not durable
                else:
                    wanted = {
                        HELD: Standing.HELD,
                        MISSING: Standing.GAP,
                        STALE: Standing.FENCED,
                        AWAY: Standing.FORGOTTEN,
                    }
                    assert found.standing is wanted[standing] and (standing != HELD or durable)
                self.refused += standing != HELD
                if standing == MISSING and producer.status == RUNNING:
                    self.producers[who].reconnect(item.shard, item.sequence)

    def _map_late(self, state: State) -> None:
        """An earlier map comes late."""
        for mine, theirs in zip(self.producers, state.producers, strict=True):
            if theirs.status == RUNNING and theirs.level:
                mine.mapped(*self.maps[theirs.level - 1])
                mine.compare(theirs)

    def _refuse(self, state: State) -> None:
        """Late ends, ends of former owners, children and writers that come too early or too late."""
        driver = self.driver
        for at in SHARDS:
            if LEVEL[at] < state.level:
                epoch, end = driver.stream(at).epoch, driver.shard(at).end_offset
                self._must_refuse(lambda a=at: driver.open(a, 0), StreamSealed)
                self._must_refuse(lambda a=at, o=end: driver.begin_range(a, o), StreamSealed)
                self._must_refuse(lambda a=at, e=epoch, o=end: driver.seal(a, e, o, create_next=True), StreamSealed)
            elif LEVEL[at] == state.level and state.shards[at].epoch and state.shards[at].taking:
                stale, end = state.shards[at].epoch, self.side.logs[at].end_offset
                self._must_refuse(lambda a=at, e=stale, o=end: driver.seal(a, e, o), WriterFenced)
        if driver.topic.state != topic_pb2.TOPIC_STATE_SCALING:
            return
        claims = [state.shards[at].claim for at in CURRENT[state.level]]
        if any(claim is None for claim in claims):
            ends = [
                driver.end_of(at, driver.stream(at).epoch, self.side.logs[at].end_offset) for at in CURRENT[state.level]
            ]
            self._must_refuse(lambda: driver.commit_scale(ends), PreconditionFailed)
        else:
            for change in ("epoch", "end_offset"):
                ends = self._ends(state)
                setattr(ends[-1], change, getattr(ends[-1], change) + 1)
                self._must_refuse(lambda e=ends: driver.commit_scale(e), WriterFenced, PreconditionFailed)
            driver.cancel_scale()
            self._must_refuse(lambda: driver.commit_scale(self._ends(state)), TopicStateForbids)
            driver.start_scale(state.level)

    def _must_refuse(self, ask: Callable[[], object], *reasons: type[RangelogError]) -> None:
        try:
            ask()
        except RangelogError as error:
            if not isinstance(error, reasons):
                raise AssertionError(f"refused for another reason: {error!r}") from error
            self.refused += 1
        else:
            raise AssertionError("the product took what the model does not offer")


def _at(shard: str) -> int:
    return SHARD.index(shard)


def _item(shard: str, sequence: str, records: str) -> Sent:
    return Sent(_at(shard), int(sequence), tuple(map(int, records.split(","))))


def _batch(who: str, item: Sent) -> Batch:
    return Batch(int(who), item.sequence, item.records)


def _text(item: Sent) -> str:
    return f"{SHARD[item.shard]}:{item.sequence}({','.join(map(str, item.records))})"
