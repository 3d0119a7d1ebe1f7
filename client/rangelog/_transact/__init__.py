"""Transactions over topics."""
