"""The compute layer: processes that own shards and journals, and keep all their data in streams."""
