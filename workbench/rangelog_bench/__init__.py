"""`rangelog bench`: throughput and latency of a cluster, measured in the same way for every system."""
