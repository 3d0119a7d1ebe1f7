"""Quotas, as servers keep to them."""
