"""The client's protocol cores: events and time in, effects out. Nothing here does I/O, waits or draws lots."""
