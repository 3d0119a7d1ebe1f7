"""What a mutant is: edits of production source that stand for one wrong choice."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Edit:
    """In this module, this text becomes that."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One wrong choice, and what it would do to people."""

    name: str
    harm: str
    edits: tuple[Edit, ...]
    first_seed: int = 0
    every: int = 1
    """The seeds that are tried: where only some have what it is about."""
    test: str = ""
    """The file of the test that catches it, where the moments that must meet are too rare for seeds."""

    def and_also(self, module: str, old: str, new: str) -> Mutant:
        """Return it with a further edit."""
        return replace(self, edits=(*self.edits, Edit(module, old, new)))


def rare(name: str, harm: str, module: str, old: str, new: str, test: str) -> Mutant:
    """Return a mutant of one edit that a test catches: a file below tests/unit, or one that begins with "tests/"."""
    return Mutant(
        name, harm, (Edit(module, old, new),), test=test if test.startswith("tests/") else f"tests/unit/{test}"
    )
