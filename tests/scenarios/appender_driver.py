"""The commands of the appender's scenarios, and its effects as lines."""

from __future__ import annotations

from rangelog.protocol.appender import (
    Appender,
    Confirmed,
    Connect,
    Effect,
    Leave,
    OpenRange,
    Probe,
    SealRange,
    Send,
    SendConfirm,
)
from rangelog_core.batch import encode_batch
from rangelog_core.errors import RangelogError, StorageFull, WriterFenced
from rangelog_core.ids import Incarnation, ReplicaId

EPOCH = 1
SIZE_BYTES_MAX = 1 << 30


def replica(name: str) -> ReplicaId:
    """The replica that a scenario calls by a letter."""
    return ReplicaId(name, Incarnation(1))


def names(replicas: object) -> str:
    """Replicas as a scenario names them."""
    return ",".join(each.server for each in replicas)  # type: ignore[attr-defined]


class AppenderDriver:
    """One writer of epoch 1, at a time that `at` sets."""

    def __init__(self) -> None:
        self.core: Appender
        self.now_ms = 0.0
        self.acks = 2

    def do_range(
        self, replicas: str, *, acks: str = "2", size: str = str(SIZE_BYTES_MAX), age_ms: str = "0"
    ) -> list[str]:
        """`range a,b,c`: open range 0 at offset 0."""
        self.acks, self.size, self.age_ms = int(acks), int(size), int(age_ms)
        self.core = Appender(EPOCH, self._open(0, 0, replicas), self.now_ms)
        return self._effects()

    def do_at(self, now_ms: str) -> list[str]:
        """`at 500`: it is 500 ms after the start; a tick."""
        self.now_ms = float(now_ms)
        self.core.tick(self.now_ms)
        return self._effects()

    def do_connect(self, *replicas: str, of: str = "") -> list[str]:
        """`connect a b`: they can be sent to."""
        for each in replicas:
            self.core.connected(self.now_ms, self._index(of), replica(each))
        return self._effects()

    def do_disconnect(self, *replicas: str, of: str = "") -> list[str]:
        """`disconnect c`: its connection broke."""
        for each in replicas:
            self.core.disconnected(self.now_ms, self._index(of), replica(each))
        return self._effects()

    def do_submit(self, count: str) -> list[str]:
        """`submit 3`: a batch of three records."""
        base, number = self.core.next_offset, int(count)
        data = encode_batch(
            stream_id=1,
            range_index=self.core.range_index,
            epoch=EPOCH,
            base_offset=base,
            timestamps_ms=[0] * number,
            values=[b"v"] * number,
        )
        try:
            self.core.submit(self.now_ms, base, base + number, data)
        except RangelogError as error:
            return [f"raises {error.code}"]
        return self._effects()

    def do_ack(self, who: str, durable_offset: str, *, of: str = "") -> list[str]:
        """`ack a 3`: it holds everything below 3."""
        self.core.acked(self.now_ms, self._index(of), replica(who), int(durable_offset))
        return self._effects()

    def do_refuse(self, who: str, why: str, *, epoch: str = "2", of: str = "") -> list[str]:
        """`refuse a fenced`, `refuse a full`: it does not take an append."""
        error = WriterFenced(epoch=int(epoch)) if why == "fenced" else StorageFull()
        self.core.refused(self.now_ms, self._index(of), replica(who), error)
        return self._effects()

    def do_probed(self, possible: str) -> list[str]:
        """`probed yes`: the placement driver answers and has somewhere to go."""
        self.core.probed(self.now_ms, possible=possible == "yes")
        return self._effects()

    def do_sealed(self, end_offset: str, replicas: str) -> list[str]:
        """`sealed 3 a,b,d`: the range ended at 3, the next one is on a, b and d."""
        opened = self._open(self.core.range_index + 1, int(end_offset), replicas)
        self.core.sealed(self.now_ms, int(end_offset), opened)
        return self._effects()

    def do_seal_refused(self) -> list[str]:
        """There is no better place."""
        self.core.seal_refused(self.now_ms)
        return self._effects()

    def do_floor_refused(self, floor_offset: str) -> list[str]:
        """`floor-refused 5`: readers were shown everything below 5."""
        self.core.floor_refused(self.now_ms, int(floor_offset))
        return self._effects()

    def do_state(self) -> list[str]:
        """Where the writer stands."""
        core = self.core
        return [f"{core.phase.value} r{core.range_index} confirm={core.confirm_offset} next={core.next_offset}"]

    # ---- inside

    def _index(self, of: str) -> int:
        return int(of) if of else self.core.range_index

    def _open(self, index: int, start_offset: int, replicas: str) -> OpenRange:
        ids = tuple(replica(each) for each in replicas.split(","))
        return OpenRange(index, start_offset, self.acks, ids, self.now_ms, self.size, self.age_ms)

    def _effects(self) -> list[str]:
        return [line for effect in self.core.effects() for line in _lines(effect)]


def _avoiding(servers: tuple[str, ...], strictly: bool) -> str:
    return f"{' strictly' if strictly else ''} avoiding {','.join(servers)}" if servers else ""


def _lines(effect: Effect) -> list[str]:
    match effect:
        case Connect():
            return [f"connect r{effect.range_index} {effect.replica.server}"]
        case Send():
            span = f"[{effect.batches[0].base_offset},{effect.batches[-1].end_offset})"
            return [f"send r{effect.range_index} {names(effect.replicas)} {span} confirm={effect.confirm_offset}"]
        case SendConfirm():
            return [f"send-confirm r{effect.range_index} {names(effect.replicas)} {effect.confirm_offset}"]
        case Confirmed():
            return [f"acked below {effect.confirm_offset}"]
        case Probe():
            return [f"probe for {effect.servers_min} servers{_avoiding(effect.exclude_servers, effect.strictly)}"]
        case SealRange():
            where = _avoiding(effect.exclude_servers, effect.strictly)
            return [f"seal r{effect.range_index} at {effect.end_offset}, next{where or ' anywhere'}"]
        case Leave():
            span = f"[{effect.start_offset},{effect.end_offset})"
            return [f"leave r{effect.range_index} {span} of {names(effect.replicas)}"]
        case _:
            return [f"stop: {effect.error.code}"]
