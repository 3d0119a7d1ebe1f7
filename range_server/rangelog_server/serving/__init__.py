"""What clients connect to: the connections of the data plane, and its operations in `handlers`."""
