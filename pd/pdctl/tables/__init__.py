"""`pdctl table`."""
