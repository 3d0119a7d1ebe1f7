"""The journal: a deterministic state machine whose log is a stream. Coordinators, tables and queues are machines on it."""
