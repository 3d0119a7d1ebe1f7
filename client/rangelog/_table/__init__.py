"""Tables: rows by key, in partitions by hash, each with linearizable reads and conditional changes."""
