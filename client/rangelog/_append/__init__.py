"""The write side: the writer and what it needs to open, roll, seal and take over ranges."""
