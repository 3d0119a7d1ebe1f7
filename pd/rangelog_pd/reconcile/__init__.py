"""Compares what is wanted with what the range servers report, on the leader. Pure: the runtime feeds and performs."""
