"""The data plane of a range server: its connections, and its operations in `handlers`."""
