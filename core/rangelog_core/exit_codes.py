"""Exit codes of server processes for their supervisor. All others: 0 after a stop, 1 after an error."""

from __future__ import annotations

EXIT_DIRECTORY_GIVEN_UP = 3
"""A range server's data directory never counts again (DirectoryGivenUp): to start the server again with it changes nothing."""
