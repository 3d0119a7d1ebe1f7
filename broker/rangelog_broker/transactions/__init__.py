"""Transactions: staged at the owners of shards, decided by a coordinator (a machine on a journal), then merged."""
