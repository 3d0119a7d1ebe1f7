"""Reads topics: the core that decides which shards are read when, and the reader over the shards' streams."""
