"""Tables: partitions of keys and values, each a machine on a journal."""
