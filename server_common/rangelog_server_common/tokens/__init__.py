"""Tokens, as servers check them."""
