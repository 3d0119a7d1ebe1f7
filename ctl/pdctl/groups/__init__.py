"""`pdctl group` and `pdctl checkpoint`."""
