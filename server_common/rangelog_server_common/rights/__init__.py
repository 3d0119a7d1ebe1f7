"""The rights that range servers and brokers know: they ask the placement driver once, and then they know for a while."""
