"""The replica core: what decides correctness on a range server. Without I/O."""
