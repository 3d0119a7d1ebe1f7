"""rangelog: a range-based, tiered, replicated log store. This package is the client."""
