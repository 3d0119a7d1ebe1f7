"""Wrong choices about taking logs over."""

from __future__ import annotations

from tests.mutants.mutant import rare

TAKEOVERS = (
    rare("claim-names-later-ranges", "a repeated claim is answered with ranges of a later writer, which reads may not go by",
         "rangelog_pd.handlers.ranges", "takewhile(last.index.__gt__, from_first)", "from_first",
         "pd/handlers/test_named_ranges.py"),
)  # fmt: skip
