"""The restore from the tier: what is chosen, what is planned, how it is read."""
