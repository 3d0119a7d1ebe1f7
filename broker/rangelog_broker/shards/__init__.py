"""Shards: the owner of a shard takes batches of many producers, each batch once and in its producer's order."""
