"""One module per kind of resource: what is sent and answered, and its operations."""
