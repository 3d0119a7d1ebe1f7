"""The write side: the writer, and how it opens, rolls, seals and takes over ranges."""
