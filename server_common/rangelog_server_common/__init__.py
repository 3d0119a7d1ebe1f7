"""What the two servers share: the gRPC server, logs, the lock of a data directory, how a process starts, stops and fails."""
