"""Appends what many tasks made in parallel to one stream, each batch of work exactly once. Spark's sink is built on it."""
