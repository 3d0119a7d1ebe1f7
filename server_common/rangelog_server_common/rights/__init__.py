"""What range servers and brokers know of rights: they ask the placement driver once, and then they know for a while."""
