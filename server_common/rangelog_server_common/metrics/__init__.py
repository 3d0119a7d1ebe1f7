"""Metrics of a server: tallies where the work is done, figures that are read at a scrape, and the HTTP port with the probes."""
