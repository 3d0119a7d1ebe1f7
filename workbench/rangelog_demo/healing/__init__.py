"""`rangelog demo --healing`: a cluster that loses servers, disks, a zone and at last everything but its bucket."""
