"""One search of a model, and the finding that it must end in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.search import Result


@dataclass(frozen=True, slots=True)
class Case:
    """One search. `expect` is the finding it must end in; empty: nothing may be broken, and no state a dead end."""

    model: str
    name: str
    why: str
    instance: object
    search: Callable[[], Result]
    expect: str = ""
    large: bool = False
    bound: bool = False  # beyond what is promised: it ends in a finding although nothing is done wrongly
