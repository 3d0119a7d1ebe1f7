"""Producing to topics. `core` decides, without I/O."""
