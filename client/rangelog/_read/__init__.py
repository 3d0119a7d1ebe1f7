"""The read side: the reader over replicas (hot) and objects (cold)."""
