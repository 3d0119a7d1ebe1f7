"""What a range server does with the object store: upload sealed ranges, delete objects."""
