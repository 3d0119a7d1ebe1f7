"""The replica core: the rules of correctness on a range server. Without I/O."""
