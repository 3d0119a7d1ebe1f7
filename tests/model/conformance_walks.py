"""Ways through a model that a product goes along: random ones, and the one that a wrong choice was found by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from rangelog_core.errors import RangelogError

Step = tuple[str, Any]
"""A label, and the state of the model after it."""


class OutOfStep(AssertionError):
    """The product does not stand where the model does, or cannot take the model's step."""


class Product(Protocol):
    """The product's side of a walk."""

    taken: dict[str, int]  # how often each kind of step

    def start(self) -> Any:
        """The model's first state."""

    def steps(self, state: Any) -> Iterable[Step]:
        """What the model can do from here, with each server under its own name."""

    def fold(self, state: Any) -> Any:
        """The state with the servers in a fixed order."""

    def take(self, label: str, before: Any, after: Any) -> bool:
        """Do the step; False: this one the product cannot do here."""

    def compare(self, state: Any, random: Random) -> None:
        """Assert that the product stands where the model does."""

    def narrowed(self, state: Any, offered: Sequence[Step]) -> Sequence[Step]:
        """Of what the model can do next, what the product leaves open."""


def walk(product: Product, seed: int, weights: Mapping[str, float], *, steps: int) -> None:
    """Take one random walk. Raises OutOfStep. `weights`: how likely a step with that word is beside the others."""
    random, state, told = Random(seed), product.start(), [f"seed {seed}"]
    for _ in range(steps):
        offered = product.narrowed(state, [step for step in product.steps(state) if step[1] != state])
        if not offered:
            return
        likely = [next((weight for word, weight in weights.items() if word in label), 1.0) for label, _ in offered]
        label, changed = random.choices(offered, likely)[0]
        if _taken(product, label, state, changed, told, random):
            state = changed


def follow(product: Product, path: Sequence[Any]) -> None:
    """Go along the states of a search's trace. Raises OutOfStep."""
    state, told = product.start(), ["the way of a search"]
    for target in path[1:]:
        label, changed = next(step for step in product.steps(state) if product.fold(step[1]) == target)
        _taken(product, label, state, changed, told, Random(0))
        state = changed


def _taken(product: Product, label: str, state: Any, changed: Any, told: list[str], random: Random) -> bool:
    told.append(label)
    try:
        if not product.take(label, state, changed):
            told.pop()
            return False
        product.compare(changed, random)
    except (AssertionError, RangelogError) as problem:
        raise OutOfStep(f"{problem!r} after\n  " + "\n  ".join(told)) from problem
    return True
