"""The placement driver's state machine: pure, deterministic, one command at a time."""
