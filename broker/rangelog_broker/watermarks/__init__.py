"""Watermarks of topics: what producers promise about event times, as a machine on a journal, and its service."""
