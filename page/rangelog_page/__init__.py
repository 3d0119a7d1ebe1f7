"""The page for browsers, served by each placement driver: what a cluster, its streams, topics, groups and tasks are."""
