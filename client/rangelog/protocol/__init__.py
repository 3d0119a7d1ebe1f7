"""The client's protocol cores: events and time in, effects out. No module here does I/O, waits, or uses randomness."""
