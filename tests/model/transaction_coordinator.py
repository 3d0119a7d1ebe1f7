"""The coordinator of transactions, a machine on a journal; the producer that asks it; one position of a group.

The journal is one linearizable machine: what it has decided is known from the entry's ack on. A request that could once be
sent may arrive at any later time, again and again, or never. A deposed coordinator repeats what is decided, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model.transaction_state import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    GROUP,
    NOT_BEGUN,
    OPEN,
    SHARDS,
    WAITING,
    Coordinator,
    Positions,
    Promises,
    Staging,
    State,
    with_item,
)

Step = tuple[str, State]


class Coordinators:
    """The steps of the coordinator and of the group."""

    def __init__(self, instance: Staging, promises: Promises) -> None:
        self.instance = instance
        self.promises = promises
        self.rows = instance.transactions
        self.wrong = instance.wrong
        self.is_merged: Callable[[State, int, int], bool] = lambda *_: False

    # ---- what owners and groups hear

    def orders(self, state: State, transaction: int) -> tuple[int, ...]:
        """Return the orders about a transaction that may arrive: COMMITTING, ABORTED."""
        found = state.coordinator.states[transaction]
        orders = []
        if found in (COMMITTING, COMMITTED) or state.early >> transaction & 1:
            orders.append(COMMITTING)
        if found == ABORTED:
            orders.append(ABORTED)
        return tuple(orders)

    def is_unknown(self, state: State, transaction: int) -> bool:
        """Whether an owner that asks may hear that a transaction was never begun, or is forgotten."""
        coordinator = state.coordinator
        if coordinator.states[transaction] == NOT_BEGUN or coordinator.forgotten >> transaction & 1:
            return True
        return state.stale is not None and state.stale.states[transaction] == NOT_BEGUN

    # ---- steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the coordinator can do."""
        coordinator = state.coordinator
        for transaction, row in enumerate(self.rows):
            found, name = coordinator.states[transaction], f"T{transaction + 1}"
            if found == NOT_BEGUN and self._may_begin(state, transaction):
                yield f"{name} begins", state._replace(coordinator=self._begun(coordinator, transaction))
            current = coordinator.epochs[row.of] == row.epoch
            if self._is_asked_to_commit(state, transaction) and current:
                again = self.wrong == "commit-after-abort" and found == ABORTED
                if found == OPEN or again:
                    yield (
                        f"the coordinator has the request to commit {name}",
                        state._replace(coordinator=self._committed(state, transaction)),
                    )
                    if self.wrong == "order-before-ack" and not state.early >> transaction & 1:
                        early = state.early | 1 << transaction
                        yield (
                            f"the order to commit {name} is sent before its entry is acked",
                            state._replace(early=early),
                        )
            if found == OPEN or (self.wrong == "abort-wins" and found == COMMITTING):
                aborted = coordinator._replace(states=with_item(coordinator.states, transaction, ABORTED))
                yield f"{name} expires", state._replace(coordinator=aborted)
            if found == COMMITTING:
                for at in (*SHARDS, GROUP):
                    if self._reports(state, transaction, at):
                        yield (
                            f"{name} is merged at {at}",
                            state._replace(coordinator=self._merged(coordinator, transaction, at)),
                        )
        yield from self._init(state)
        if self.wrong == "unknown-by-deposed" and state.stale is None:
            yield "a second coordinator deposes the first", state._replace(stale=coordinator)

    def _may_begin(self, state: State, transaction: int) -> bool:
        row, coordinator = self.rows[transaction], state.coordinator
        if coordinator.epochs[row.of] != row.epoch or (
            self.instance.group and transaction and state.positions.read < 0
        ):
            return False
        earlier = [
            coordinator.states[each] for each in self.promises.members(row.of) if self.rows[each].number < row.number
        ]
        return not any(found in (NOT_BEGUN, OPEN, WAITING) for found in earlier)

    def _begun(self, coordinator: Coordinator, transaction: int) -> Coordinator:
        """What is finished is forgotten when the next one of its id begins."""
        forgotten = coordinator.forgotten
        gone = (COMMITTED, ABORTED, COMMITTING) if self.wrong == "forgotten-unmerged" else (COMMITTED, ABORTED)
        for each in self.promises.members(self.rows[transaction].of):
            if coordinator.states[each] in gone:
                forgotten |= 1 << each
        return coordinator._replace(states=with_item(coordinator.states, transaction, OPEN), forgotten=forgotten)

    def _is_asked_to_commit(self, state: State, transaction: int) -> bool:
        """All that was staged is acked, the position included."""
        records = self.promises.all[transaction]
        if state.acked & records != records:
            return False
        staged = self.instance.group and self.wrong != "offsets-at-commit"
        return not staged or bool(state.positions.staged >> transaction & 1)

    def _committed(self, state: State, transaction: int) -> Coordinator:
        coordinator = state.coordinator
        participants = 1 << GROUP if self.instance.group else 0
        for at, shard in enumerate(state.shards):
            held = any(each.transaction == transaction for each in shard.staged)
            if held and not (self.wrong == "participants-left-out" and participants):  # the first alone
                participants |= 1 << at
        changed = coordinator._replace(
            states=with_item(coordinator.states, transaction, WAITING),
            participants=with_item(coordinator.participants, transaction, participants),
        )
        return self._decided(changed, self.rows[transaction].of)

    def _decided(self, coordinator: Coordinator, of: int) -> Coordinator:
        """Commit the one that waits, if all before it are finished."""
        states = coordinator.states
        for each in self.promises.members(of):
            if states[each] == WAITING:
                states = with_item(states, each, COMMITTING)
            if states[each] in (OPEN, COMMITTING) and self.wrong != "no-order":
                break
        return coordinator._replace(states=states)

    def _reports(self, state: State, transaction: int, at: int) -> bool:
        """Whether a participant may report that it has merged, and has not yet."""
        coordinator = state.coordinator
        wanted = coordinator.participants[transaction] & ~coordinator.merged[transaction]
        if not wanted >> at & 1:
            return False
        if at == GROUP:
            return bool(state.positions.finished >> transaction & 1)
        if self.wrong == "reported-when-merged" and self.is_merged(state, at, transaction):
            return True
        return self.promises.is_finished(state.shards[at], transaction)

    def _merged(self, coordinator: Coordinator, transaction: int, at: int) -> Coordinator:
        merged = with_item(coordinator.merged, transaction, coordinator.merged[transaction] | 1 << at)
        changed = coordinator._replace(merged=merged)
        if merged[transaction] != coordinator.participants[transaction]:
            return changed
        changed = changed._replace(states=with_item(changed.states, transaction, COMMITTED))
        return self._decided(changed, self.rows[transaction].of)

    def _init(self, state: State) -> Iterator[Step]:
        """A later instance of the first id: what the earlier one left open is aborted."""
        coordinator = state.coordinator
        later = any(row.of == 0 and row.epoch == 2 for row in self.rows)
        if not later or coordinator.epochs[0] == 2 or coordinator.states[0] == NOT_BEGUN:
            return
        states = tuple(
            ABORTED if found == OPEN and row.of == 0 else found
            for found, row in zip(coordinator.states, self.rows, strict=True)
        )
        changed = coordinator._replace(states=states, epochs=with_item(coordinator.epochs, 0, 2))
        yield "a later instance begins, with epoch 2", state._replace(coordinator=changed)


class Groups:
    """The steps of a group's journal, as a spec of what the machine of groups must do with positions in transactions.

    * stage(transaction, shard, offset, member, since): the generation is checked here, as that of a commit is, and never
      again. A number at or below the floor of its producer id is refused. What is staged lies beside the committed position.
    * A shard with a staged position is not handed out, and no member is given its position, until what is staged is applied
      or dropped; not after the member's death, and not after a reset.
    * commit(transaction): the staged offset becomes the committed position, whoever has the shard now. It is reported as
      merged then. The floor of the producer id rises as that of a shard's owner does: not over a lower number that is staged.
    * abort(transaction), or an answer "unknown" of a read that began after the question: what is staged is dropped.
    """

    def __init__(self, instance: Staging, promises: Promises, coordinators: Coordinators) -> None:
        self.instance = instance
        self.promises = promises
        self.coordinators = coordinators
        self.wrong = instance.wrong

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the group can do."""
        positions = state.positions
        for transaction in range(len(self.instance.transactions)):
            for label, changed in self._one(state, positions, transaction):
                yield f"the group {label} T{transaction + 1}", state._replace(positions=changed)
        if positions.generation == 1:
            yield (
                "the group hands the shard to another member",
                state._replace(positions=positions._replace(generation=2)),
            )
        held = positions.staged & ~positions.finished and self.wrong != "no-hold"
        if positions.generation == 2 and positions.read < 0 and not held:
            yield (
                f"the next member is given position {positions.offset}",
                state._replace(positions=positions._replace(read=positions.offset)),
            )

    def _one(self, state: State, positions: Positions, transaction: int) -> Iterator[tuple[str, Positions]]:
        bit = 1 << transaction
        target = Promises.input(positions, transaction) + 1
        is_fresh = positions.generation == (2 if transaction else 1)
        begun = state.coordinator.states[transaction] != NOT_BEGUN
        checked = self.wrong not in ("generation-at-apply", "generation-unchecked")
        late = self.wrong == "offsets-at-commit"
        if begun and not (positions.staged | positions.finished) & bit and (is_fresh or not checked) and not late:
            staged = positions._replace(staged=positions.staged | bit)
            if self.wrong == "offsets-at-stage":
                staged = staged._replace(offset=target)
            yield "stages the position of", staged
        if positions.finished & bit:
            return
        for order in self.coordinators.orders(state, transaction):
            done = positions._replace(finished=positions.finished | bit)
            if order == ABORTED:
                yield "drops the position of", done
            elif positions.staged & bit or late:
                applies = self.wrong != "generation-at-apply" or is_fresh
                yield "applies the position of", done._replace(offset=target) if applies else done
        if positions.staged & bit and self.coordinators.is_unknown(state, transaction):
            yield (
                "asks, and drops what is unknown: the position of",
                positions._replace(finished=positions.finished | bit),
            )
