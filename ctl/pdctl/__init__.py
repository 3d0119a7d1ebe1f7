"""pdctl: administers a rangelog cluster through its API. Never imports a server."""
