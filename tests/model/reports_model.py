"""What the driver believes of one replica: heartbeats that are lost, late and overtaken, on the product's own ClusterView.

The server is the agent as it is: one heartbeat at a time, given up after a while; what changed since the last one that
was answered; all of it when that is asked for; drops that it was told of and still has at hand. Restarts of its process
and changes of the leader in between. What the driver counts as held must be there, and must not be about to go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from rangelog_pd.reconcile.view import ClusterView, ServerView, drop_task_id
from rangelog_proto.v1 import pd_pb2

NAME, INCARNATION, KEY = "s0", 7, (1, 0)
BOOT = 1 << 32
NOTHING, SEALED, GONE = range(3)  # what a heartbeat says of the replica


@dataclass(frozen=True, slots=True, order=True)
class Beat:
    """A heartbeat on its way."""

    sequence: int
    complete: bool
    said: int
    dropping: bool


@dataclass(frozen=True, slots=True)
class View:
    """What the leader keeps: the fields of a ServerView that matter here."""

    complete: bool = False
    sequence: int = 0
    held: bool = False
    dropping: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The server, the network, the leader, and what may still happen."""

    view: View | None
    there: bool = True
    changed: bool = True
    send_complete: bool = True
    at_hand: bool = False
    sequence: int = BOOT
    waiting: Beat | None = None
    waiting_changed: bool = False
    answer: tuple[int, bool, bool] | None = None  # to which, send everything, drop
    beats: tuple[Beat, ...] = ()
    sends: int = 4
    late: int = 2
    restarts: int = 0
    leaders: int = 0
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Reports:
    """One instance. `late`: heartbeats that can be under way at a time and are not waited for any more."""

    sends: int = 5
    late: int = 2
    restarts: int = 0
    leaders: int = 0
    wrong: str = ""

    def initial(self) -> State:
        """The server has just registered, with its replica."""
        number = 0 if self.wrong == "number-from-one-again" else 1
        return State(
            registered(number),
            sequence=number * BOOT,
            sends=self.sends,
            late=self.late,
            restarts=self.restarts,
            leaders=self.leaders,
        )

    def invariant(self, state: State) -> str:
        """Name what is broken, or nothing."""
        if state.view is None or not counted(state.view, self.wrong):
            return ""
        if not state.there:
            return "COUNTED-BUT-GONE"
        told = state.answer is not None and state.answer[2]
        return "COUNTED-BUT-GOING" if state.at_hand or told else ""

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that can be taken from here."""
        yield from self._server(state)
        yield from self._answer(state)
        for beat in state.beats:
            yield from self._arrives(state, beat)
        if state.leaders:
            yield "another leader takes over", replace(state, view=None, leaders=state.leaders - 1, answer=None)
        if state.restarts:
            number = 0 if self.wrong == "number-from-one-again" else state.sequence // BOOT + 1
            boot = number * BOOT
            yield (
                "the server starts anew and registers",
                replace(
                    state, view=registered(number), changed=True, send_complete=True, at_hand=False, sequence=boot,
                    waiting=None, answer=None, restarts=state.restarts - 1,
                ),
            )  # fmt: skip

    def _server(self, state: State) -> Iterator[tuple[str, State]]:
        if state.at_hand:
            yield "the replica is dropped", replace(state, there=False, at_hand=False, changed=True)
        if not state.there and state.copies:
            yield "the replica is copied anew", replace(state, there=True, changed=True, copies=state.copies - 1)
        if state.waiting is None and state.sends:
            news = (SEALED if state.there else GONE) if state.changed or state.send_complete else NOTHING
            beat = Beat(state.sequence + 1, state.send_complete, news, state.at_hand)
            yield (
                f"heartbeat {beat.sequence % BOOT} goes out",
                replace(
                    state, waiting=beat, waiting_changed=state.changed, changed=False, send_complete=False,
                    sequence=beat.sequence, beats=tuple(sorted((*state.beats, beat))), sends=state.sends - 1,
                ),
            )  # fmt: skip
        if state.waiting is not None and state.late:
            yield (
                f"heartbeat {state.waiting.sequence % BOOT} is waited for no more",
                replace(
                    state, waiting=None, answer=None, changed=state.changed or state.waiting_changed,
                    send_complete=state.send_complete or state.waiting.complete, late=state.late - 1,
                ),
            )  # fmt: skip

    def _answer(self, state: State) -> Iterator[tuple[str, State]]:
        if state.answer is None or state.waiting is None:
            return
        _, everything, drop = state.answer
        taken = replace(
            state, waiting=None, answer=None, send_complete=state.send_complete or everything,
            at_hand=(drop and state.there) or state.at_hand,
        )  # fmt: skip
        yield "the answer arrives", taken
        if state.at_hand and not drop:
            yield "the answer arrives, the old directive is withdrawn", replace(taken, at_hand=False)

    def _arrives(self, state: State, beat: Beat) -> Iterator[tuple[str, State]]:
        rest = tuple(one for one in state.beats if one != beat)
        view, everything = heartbeat(state.view, beat, self.wrong)
        late = "" if state.waiting == beat else ", late"
        for drop in (False, True) if view.complete and view.held else (False,):
            after = replace(view, dropping=view.dropping or drop)
            answer = (beat.sequence, everything, drop) if state.waiting == beat else state.answer
            told = ", told to drop" if drop else ""
            yield (
                f"heartbeat {beat.sequence % BOOT} is taken{late}{told}",
                replace(state, view=after, beats=rest, answer=answer),
            )


def _cluster(view: View | None) -> ClusterView:
    cluster = ClusterView(1_500, 5_000)
    if view is not None:
        server = cluster.servers[NAME] = ServerView(INCARNATION, 0.0, complete=view.complete, sequence=view.sequence)
        if view.held:
            server.reports[KEY] = _report(SEALED)
        if view.dropping:
            server.dropping[KEY] = None
    return cluster


def _report(said: int) -> pd_pb2.ReplicaReport:
    state = pd_pb2.REPLICA_STATE_SEALED if said == SEALED else pd_pb2.REPLICA_STATE_UNSPECIFIED
    return pd_pb2.ReplicaReport(stream_id=KEY[0], range_index=KEY[1], state=state)


def _view(cluster: ClusterView) -> View:
    server = cluster.servers[NAME]
    return View(server.complete, server.sequence, KEY in server.reports, KEY in server.dropping)


@cache
def registered(boot: int) -> View:
    """What the leader knows once the server has registered."""
    cluster = _cluster(None)
    cluster.registered(NAME, INCARNATION, 0.0, boot=boot)
    return _view(cluster)


@cache
def heartbeat(view: View | None, beat: Beat, wrong: str) -> tuple[View, bool]:
    """Let the product take a heartbeat; return what it keeps, and whether it asks for everything."""
    cluster = _cluster(view)
    said = beat.said == SEALED or (beat.said == GONE and not beat.complete)
    request = pd_pb2.HeartbeatRequest(
        server=NAME,
        incarnation=INCARNATION,
        sequence=beat.sequence,
        complete=beat.complete,
        replicas=[_report(beat.said)] if said else [],
        tasks=[pd_pb2.TaskReport(task_id=drop_task_id(KEY, NAME))] if beat.dropping else [],
    )
    if wrong == "take-what-was-overtaken" and view is not None and beat.sequence <= view.sequence:
        cluster.servers[NAME].sequence = beat.sequence - 2
    if wrong == "believe-the-first-heard" and view is None:
        cluster.servers[NAME] = ServerView(INCARNATION, 0.0, sequence=beat.sequence - 1)
    everything = cluster.heartbeat(request, 0.0, 0)
    return _view(cluster), everything


@cache
def counted(view: View, wrong: str) -> bool:
    """Whether the product counts the replica as held."""
    if wrong == "count-what-was-told-to-go":
        view = replace(view, dropping=False)
    return _cluster(view).held(NAME, INCARNATION, KEY) is not None
