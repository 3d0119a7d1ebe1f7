"""The port of producers."""
