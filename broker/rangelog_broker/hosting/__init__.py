"""What a broker owns, from the assignments of the placement driver."""
