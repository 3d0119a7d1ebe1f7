"""The gRPC service: one file a noun, put together in service.py."""
