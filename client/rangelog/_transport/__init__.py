"""The two transports: gRPC for metadata, framed TCP for records."""
