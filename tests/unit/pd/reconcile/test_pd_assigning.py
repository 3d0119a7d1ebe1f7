"""Who owns what: even, sticky, over zones; few moves, and an end of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.limits import COMMAND_BYTES_MAX, NAME_LENGTH_MAX
from rangelog_pd.reconcile.assigning import next_assignments, next_move, next_returns
from rangelog_pd.reconcile.broker_view import BrokersView
from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_proto.v1 import broker_pb2, pd_state_pb2, topic_pb2

NAMES = ["b1", "b2", "b3", "b4"]


def tables(shards: int, *brokers: str, zones: str = "") -> OwnerTables:
    """Shards 0 to `shards` of topic 1, beside the journals, and brokers in their zones."""
    owners = OwnerTables(lambda before, after: None)
    for number in range(shards):
        owners.shard_changed(None, topic_pb2.Shard(topic_id=1, shard_id=number, created_version=1))
    for number, name in enumerate(brokers):
        register(owners, name, zone=zones[number] if zones else "")
    return owners


def register(
    owners: OwnerTables, name: str, incarnation: int = 1, zone: str = "", *, lost: bool = False, host: str = ""
) -> None:
    owners.brokers.put(name, broker_pb2.Broker(name=name, incarnation=incarnation, zone=zone, lost=lost, host=host))


def take(owners: OwnerTables, made: list[broker_pb2.Assignment]) -> None:
    """Apply as the state machine does."""
    for each in made:
        row = broker_pb2.Assignment()
        row.CopyFrom(each)
        row.owner_epoch += 1
        owners.assignments.put((each.topic_id, each.shard_id), row)


def assign_all(owners: OwnerTables) -> None:
    while made := next_assignments(owners):
        take(owners, made)
    assert not owners.unowned or not any(not each.lost for each in owners.brokers.values())


def counts(owners: OwnerTables) -> dict[str, int]:
    return {name: len(each) for name, each in owners.owned.items()}


def placed(owners: OwnerTables) -> dict[tuple[int, int], str]:
    return {key: each.broker for key, each in owners.assignments.items()}


def test_shards_and_journals_are_spread_evenly() -> None:
    """Over all brokers that are alive; without one, nothing is assigned."""
    owners = tables(1_000)
    assert not next_assignments(owners)
    for name in NAMES:
        register(owners, name, lost=name == "b4")
    assign_all(owners)
    assert sorted(counts(owners).values()) == [338, 339, 339]


def test_zones_come_in_turn() -> None:
    """The first shards go to brokers of different zones."""
    owners = tables(0, *NAMES, zones="aaab")
    first_two = {each.broker for each in next_assignments(owners)[:2]}
    assert first_two == {"b1", "b4"}


def test_the_shards_of_a_lost_broker_leave_its_host() -> None:
    """While brokers of other hosts live; where all live on its host, they have them."""
    hosts = {"b1": "h1", "b2": "h1", "b3": "h2", "b4": ""}
    owners = tables(84)
    for name, host in hosts.items():
        register(owners, name, host=host)
    assign_all(owners)
    before = placed(owners)
    register(owners, "b1", lost=True, host="h1")
    lost = [*owners.unowned]
    assign_all(owners)
    assert {placed(owners)[key] for key in lost} == {"b3", "b4"}
    assert {key: name for key, name in placed(owners).items() if key not in lost} == {
        key: name for key, name in before.items() if key not in lost
    }
    for name in ("b3", "b4"):
        register(owners, name, lost=True, host="h1")
    assign_all(owners)
    assert set(placed(owners).values()) == {"b2"}


def test_a_lost_broker_costs_its_own_shards_only() -> None:
    """The rest stay where they are; so do the shards of a broker that only started again."""
    owners = tables(84, *NAMES)
    assign_all(owners)
    before = placed(owners)
    register(owners, "b2", lost=True)
    assert len(owners.unowned) == 25
    assign_all(owners)
    after = placed(owners)
    assert {key for key in after if after[key] != before[key]} == {key for key in before if before[key] == "b2"}
    assert sorted(counts(owners).values()) == [33, 33, 34]
    register(owners, "b1", incarnation=2)
    assign_all(owners)
    assert placed(owners) == after
    assert {each.incarnation for each in owners.assignments.values() if each.broker == "b1"} == {2}


def test_brokers_that_start_again_together_have_each_its_own_back() -> None:
    """Who holds a shard's table of producers in memory, or its files in a cache, does best with that shard."""
    owners = tables(84, *NAMES)
    assign_all(owners)
    before = placed(owners)
    for name in ("b1", "b3", "b4"):
        register(owners, name, incarnation=2)
    assign_all(owners)
    assert placed(owners) == before


def test_a_broker_that_returns_empty_is_given_shards_by_moves() -> None:
    """One at a time, and no more than its even part."""
    owners = tables(84, "b1", "b2")
    assign_all(owners)
    register(owners, "b3")
    moves = move_until_even(owners, BrokersView(1_000))
    assert 25 <= moves <= 33
    assert max(counts(owners).values()) - min(counts(owners).values()) <= 9


def move_until_even(owners: OwnerTables, view: BrokersView, loads: dict[int, int] | None = None) -> int:
    """Take moves while there are any, under constant loads by shard; return their number."""
    for number in range(1_000):
        view.start_leading(0)
        for name, keys in owners.owned.items():
            reports = [
                broker_pb2.ShardLoad(topic_id=key[0], shard_id=key[1], bytes_per_s=(loads or {}).get(key[1], 0))
                for key in keys
                if key[0]
            ]
            view.heartbeat(
                owners, broker_pb2.BrokerHeartbeatRequest(name=name, incarnation=1, loads=reports, complete=True), 0
            )
        move = next_move(owners, view)
        if move is None:
            return number
        take(owners, [move])
    raise AssertionError("the moves do not end")


def test_a_hot_shard_keeps_its_broker_and_the_others_leave_it() -> None:
    """A move that would only carry the heat elsewhere is not made."""
    owners = tables(8, "b1", "b2")
    assign_all(owners)
    before = placed(owners)
    hot = 0
    move_until_even(owners, BrokersView(1_000), {hot: 1_000_000})
    after = placed(owners)
    assert after[1, hot] == before[1, hot]
    of_hot = Counter(after.values())[after[1, hot]]
    assert of_hot == 1 or of_hot < 6


@given(
    shards=st.integers(0, 30),
    brokers=st.integers(1, 4),
    loads=st.dictionaries(st.integers(0, 29), st.integers(0, 1 << 40), max_size=30),
)
def test_moves_end_whatever_the_loads(shards: int, brokers: int, loads: dict[int, int]) -> None:
    """With constant loads; nothing is moved to and fro."""
    owners = tables(shards, *NAMES[:brokers])
    assign_all(owners)
    register(owners, "b9")
    move_until_even(owners, BrokersView(1_000), loads)


def test_nothing_is_moved_while_something_has_no_owner() -> None:
    """Nor with one broker only."""
    owners = tables(20, "b1")
    assign_all(owners)
    view = BrokersView(1_000)
    assert next_move(owners, view) is None
    register(owners, "b2")
    assert next_move(owners, view) is not None
    owners.shard_changed(None, topic_pb2.Shard(topic_id=1, shard_id=99, created_version=1))
    assert next_move(owners, view) is None


def test_the_largest_command_fits() -> None:
    """With names of 200 characters the assignments of one command are as many as have room; else they are 1,000."""
    owners = tables(2_000, "b" * NAME_LENGTH_MAX)
    made = next_assignments(owners)
    command = pd_state_pb2.Command(version=4, assign_shards=pd_state_pb2.AssignShards(assignments=made))
    assert 200 < len(made) < 1_000
    assert command.ByteSize() <= COMMAND_BYTES_MAX
    assert len(next_assignments(tables(2_000, "b1"))) == 1_000


# ---- what the leader hears


def test_a_broker_that_is_not_known_must_register() -> None:
    """Also one that counts as lost, and a former incarnation; the first report to a leader is to be complete."""
    owners = tables(0, "b1")
    register(owners, "b2", lost=True)
    view = BrokersView(1_000)
    view.start_leading(0)

    def beat(name: str, incarnation: int = 1, *, complete: bool = False) -> tuple[bool, bool]:
        request = broker_pb2.BrokerHeartbeatRequest(name=name, incarnation=incarnation, complete=complete)
        answer = view.heartbeat(owners, request, 500)
        return answer.register, answer.send_all

    assert beat("b9") == beat("b2") == beat("b1", 7) == (True, False)
    assert beat("b1") == (False, True)
    assert beat("b1", complete=True) == (False, False)
    assert not view.is_silent(owners.brokers["b1"], 1_499)
    assert view.is_silent(owners.brokers["b1"], 1_500)
    view.start_leading(9_000)
    assert not view.is_silent(owners.brokers["b1"], 9_999), "silence counts from the start of the leadership"
    assert beat("b1") == (False, True)


def test_loads_are_those_of_the_last_report() -> None:
    """A shard that has none any more is left out; so is what another incarnation reported."""
    owners = tables(0, "b1")
    view = BrokersView(1_000)

    def beat(*loads: tuple[int, int], complete: bool = False) -> None:
        reports = [broker_pb2.ShardLoad(topic_id=1, shard_id=each, bytes_per_s=load) for each, load in loads]
        request = broker_pb2.BrokerHeartbeatRequest(name="b1", incarnation=1, loads=reports, complete=complete)
        view.heartbeat(owners, request, 0)

    beat((0, 5), (1, 6), complete=True)
    beat((0, 0), (2, 7))
    assert [view.load("b1", 1, (1, each)) for each in range(3)] == [0, 6, 7]
    assert view.load("b1", 2, (1, 1)) == 0
    assert view.total("b1", 1) == 13
    beat((4, 1), complete=True)
    assert [view.load("b1", 1, (1, each)) for each in (1, 4)] == [0, 1]
    assert (view.total("b1", 1), view.total("b1", 2), view.total("b9", 1)) == (1, 0, 0)


def test_the_load_of_a_shard_goes_with_it() -> None:
    """Until both brokers have reported: else the next move would be decided as if nothing had been moved."""
    owners = tables(0, "b1", "b2")
    view = BrokersView(1_000)
    for name, load in (("b1", 9), ("b2", 1)):
        reports = [broker_pb2.ShardLoad(topic_id=1, shard_id=load, bytes_per_s=load)]
        request = broker_pb2.BrokerHeartbeatRequest(name=name, incarnation=1, loads=reports, complete=True)
        view.heartbeat(owners, request, 0)
    view.carry((1, 9), "b1", "b2")
    assert (view.total("b1", 1), view.total("b2", 1), view.load("b2", 1, (1, 9))) == (0, 10, 9)
    view.carry((1, 5), "b1", "b2")
    view.carry((1, 9), "b2", "b9")
    assert view.total("b2", 1) == 10


def test_what_an_older_program_cannot_open_goes_to_a_newer_one() -> None:
    """To the newest one alive; not from one of the newest, and only what it still owns in this incarnation."""
    owners = tables(4, "b1", "b2", "b3")
    view = BrokersView(5_000)

    def beat(name: str, level: int, *unopenable: int) -> None:
        rows = [broker_pb2.OwnedShard(topic_id=1, shard_id=each) for each in unopenable]
        request = broker_pb2.BrokerHeartbeatRequest(name=name, incarnation=1, feature_level=level, unopenable=rows)
        view.heartbeat(owners, request, 0)

    assign_all(owners)
    mine = [key[1] for key in owners.owned["b1"] if key[0]]
    beat("b1", 12, *range(4))
    beat("b2", 12)
    assert next_returns(owners, view) == []
    beat("b3", 13, 0)
    made = next_returns(owners, view)
    assert [(each.shard_id, each.broker) for each in made] == [(each, "b3") for each in mine]
    take(owners, made)
    assert next_returns(owners, view) == []
