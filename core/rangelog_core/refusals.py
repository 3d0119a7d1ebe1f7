"""Sentences of refusals that programs look for as well as people."""

from __future__ import annotations

DIRECTORY_GIVEN_UP = "its replicas are given up: move it away and start with an empty one"
"""Ends the refusal of a range server whose data directory never counts again: it was removed, or replaced by a later one."""
