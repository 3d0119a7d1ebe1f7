"""Transactions of a client."""
