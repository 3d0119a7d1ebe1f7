"""The range server's side of the placement driver: registration, heartbeats, and the directives that come back."""
