"""A small certificate authority, to try TLS with and for clusters that have no other: `rangelog certs`."""
