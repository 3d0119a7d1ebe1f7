"""One module for each kind of request: decode, verb, encode."""
