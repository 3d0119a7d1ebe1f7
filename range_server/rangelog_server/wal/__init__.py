"""The write-ahead log of one range server: one sequence of recycled segment files that holds every range."""
