"""`pdctl pd …`: the members of the group of placement drivers, and their state as a file."""
