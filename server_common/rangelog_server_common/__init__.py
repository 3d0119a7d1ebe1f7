"""The common parts of the servers: the gRPC server, logs, the lock of a data directory, how a process starts, stops and
fails."""
