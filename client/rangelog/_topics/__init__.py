"""Topics: their values, their administration, their shard graph and the watch of it."""
