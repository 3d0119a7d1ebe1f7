"""Namespaces, topics, their shards, and brokers: one noun per file, over what they have in common."""
