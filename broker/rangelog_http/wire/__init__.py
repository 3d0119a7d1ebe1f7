"""From bytes of requests to records, and back. No I/O."""
