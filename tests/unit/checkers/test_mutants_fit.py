"""The catalogue of mutants keeps up with the code: every edit still finds its text, once, and still compiles."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.mutating import edited, source_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_edit_fits(mutant: Mutant) -> None:
    """All of a mutant's edits of a module together make a module again, and another one."""
    for module in {edit.module for edit in mutant.edits}:
        before = after = source_of(module).read_text()
        for edit in mutant.edits:
            if edit.module == module:
                after = edited(after, edit)
        assert after != before
        compile(after, module, "exec", dont_inherit=True)
