"""The two transports: gRPC for metadata, framed TCP for records; addresses, TLS and timeouts of both."""
