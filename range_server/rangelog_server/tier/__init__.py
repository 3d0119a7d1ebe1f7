"""The range server's work on the object store: upload sealed ranges, delete objects."""
