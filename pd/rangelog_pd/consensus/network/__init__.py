"""Authenticated connections between members, and the messages on them."""
