"""The gRPC service: one file per noun, combined in service.py."""
