"""The range server's side of the placement driver: registration, heartbeats, and the directives in their replies."""
