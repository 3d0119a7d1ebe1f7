"""`rangelog bench`: what a cluster does per second and how long it takes, measured the same way for every system."""
