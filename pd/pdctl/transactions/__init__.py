"""`pdctl transaction`."""
